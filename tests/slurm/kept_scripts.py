"""The scripts in `slurm/`, from the function that renders what is submitted.

Run this file to write them again: `python tests/slurm/kept_scripts.py`.
"""

from __future__ import annotations

from pathlib import Path

from rel_batch.launch.slurm_script import Placement, render_array, render_report
from rel_batch.slurm_settings import SlurmConfig

FOLDER = Path(__file__).parents[2] / "slurm"

_SETUP = ("# source ~/venv/bin/activate",)
_PREPARED = (
    "Edit the #SBATCH lines, then on a login node:",
    "",
    "    rel-batch slurm prepare night.yaml        # fetches the model, creates outputs/night",
)


def kept_scripts() -> dict[str, str]:
    """Each script by its name."""
    return {
        "array.sbatch": render_array(
            SlurmConfig(tasks=32, throttle=16, cpus_per_task=8, mem="64G", setup=_SETUP),
            Placement.of_any_run("rel-array"),
            about=(
                "An array of tasks with one GPU each: as many workers of one run folder. Any of",
                "them may die, be requeued or never start, and the run still ends complete.",
                *_PREPARED,
                "    sbatch slurm/array.sbatch outputs/night",
            ),
        ),
        "one_node.sbatch": render_array(
            SlurmConfig(gpus_per_task=8, cpus_per_task=64, mem="512G", setup=_SETUP),
            Placement.of_any_run("rel-node"),
            about=(
                "One node with several GPUs: one worker for each group of GPUs that the model",
                "needs (engine.tensor_parallel_size in the config).",
                *_PREPARED,
                "    sbatch slurm/one_node.sbatch outputs/night",
            ),
        ),
        "multi_node.sbatch": render_array(
            SlurmConfig(nodes_per_task=2, gpus_per_task=8, cpus_per_task=64, setup=_SETUP),
            Placement.of_any_run("rel-nodes"),
            about=(
                "One model over several nodes, by vLLM's own support for them (no Ray): tensor",
                "parallel inside a node, pipeline parallel between nodes. The config says",
                "",
                "    engine: {tensor_parallel_size: 8, engine_args: {pipeline_parallel_size: 2}}",
                "",
                "and their product is the number of GPUs of all nodes of a task. This script was",
                "run on two emulated nodes with a tiny model on the CPU, and not yet on GPUs.",
                *_PREPARED,
                "    sbatch slurm/multi_node.sbatch outputs/night",
            ),
        ),
        "ablation.sbatch": render_array(
            SlurmConfig(tasks=16, cpus_per_task=8, mem="64G", setup=_SETUP),
            Placement.of_any_run("rel-ablation"),
            about=(
                "The ablation: the same instances under several arms, which share their prompts'",
                "cache because the arms of an instance stay in one chunk.",
                "Edit the #SBATCH lines, and model.path in configs/ablation.yaml, then:",
                "",
                "    rel-batch slurm prepare configs/ablation.yaml",
                "    sbatch slurm/ablation.sbatch outputs/ablation",
                "    sbatch --dependency=afterany:JOB slurm/report.sbatch outputs/ablation",
            ),
        ),
        "report.sbatch": render_report(
            SlurmConfig(setup=_SETUP),
            Placement.of_any_run("rel"),
            about=(
                "Scores, compacts and reports a run; needs no GPU. Queue it behind the array,",
                "whatever becomes of that:",
                "",
                "    sbatch --dependency=afterany:JOB slurm/report.sbatch outputs/night",
            ),
        ),
    }


if __name__ == "__main__":
    for name, text in kept_scripts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
