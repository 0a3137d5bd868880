"""Whole processes side by side: `rel-batch run`, and lm-evaluation-harness with its vLLM backend.

    python benchmarks/against_lm_eval.py --lm-eval PYTHON [--checkpoint DIR] [--repeats 5]

PYTHON is an interpreter with `lm_eval` and the same vLLM. Both sides answer the same questions with
the same checkpoint, greedily, without constraint, to the same bound, with the same engine
arguments, from start-up to scored results. One arm is one call of either. Four arms are one run of
ours, and four runs of the harness, which knows no arms.

Then each is killed with -9 when 90% is done, and run again. Of ours it is known how many rows had
finished and how many of them are kept; what was in the engine is counted as if it had been nearly
finished. The harness is given its cache of replies (`--use_cache`) and is killed after 90% of the
time that a run takes; what its second life takes, over a whole run, is what it repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from repeated import publish, ratio, repeated

from rel_batch.instances import read_instances
from rel_batch.store import RunFolder
from rel_batch.tasks import task_for

HERE = Path(__file__).parent
MAX_TOKENS = 64
MAX_MODEL_LEN = 2048
MAX_NUM_SEQS = 16


class Comparison:
    """The two sides, on the same questions."""

    def __init__(self, folder: Path, checkpoint: Path, lm_eval: str, copies: int) -> None:
        self.folder, self.checkpoint, self.lm_eval = folder, checkpoint, lm_eval
        self.records = folder / "records.jsonl"
        bundled = Path(str(read_instances.__globals__["__file__"])).parent / "bundled"
        lines = [
            json.loads(line)
            for file in sorted(bundled.glob("*.jsonl"))
            if file.name.startswith(("REL-A", "REL-C"))
            for line in file.read_text(encoding="utf-8").splitlines()
        ]
        # Copies differ in their first words, so that no question is another's cached prefix.
        records = [
            {
                **line,
                "id": f"{line['id']}-{copy}",
                "question": f"No. {copy}-{n}.\n{line['question']}",
            }
            for copy in range(copies)
            for n, line in enumerate(lines)
        ]
        self.records.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
        self.num_instances = len(records)
        with (folder / "questions.jsonl").open("w", encoding="utf-8") as file:
            for instance in read_instances(str(self.records)):
                reference = task_for(instance.task).reference_reply(instance)
                row = {"question": instance.question, "reference": reference}
                file.write(json.dumps(row) + "\n")
        task = (HERE / "lm_eval" / "rel.yaml").read_text(encoding="utf-8")
        task = task.replace("questions.jsonl", str(folder / "questions.jsonl"))
        task = task.replace("max_gen_toks: 64", f"max_gen_toks: {MAX_TOKENS}")
        (folder / "rel.yaml").write_text(task, encoding="utf-8")

    def ours(self, num_arms: int, name: str) -> list[str]:
        arms = [
            {"name": f"arm{n}", "constraint": "none", "max_tokens": MAX_TOKENS}
            for n in range(num_arms)
        ]
        config = {
            "run": name,
            "model": {
                "path": str(self.checkpoint),
                "max_model_len": MAX_MODEL_LEN,
                "dtype": "float32",
            },
            "instances": {"source": str(self.records)},
            "engine": {"cpu_kv_cache_gib": 1, "engine_args": {"max_num_seqs": MAX_NUM_SEQS}},
            "arms": arms,
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(config), encoding="utf-8")
        return [sys.executable, "-m", "rel_batch", "run", str(path)]

    def theirs(self) -> list[str]:
        arguments = (
            f"pretrained={self.checkpoint},dtype=float32,max_model_len={MAX_MODEL_LEN},"
            f"enforce_eager=True,max_num_seqs={MAX_NUM_SEQS},enable_prefix_caching=True,disable_log_stats=True"
        )
        return [
            *(self.lm_eval, str(HERE / "lm_eval" / "run.py"), "run", "--model", "vllm"),
            *("--model_args", arguments, "--tasks", "rel", "--include_path", str(self.folder)),
            *("--batch_size", "auto", "--output_path", str(self.folder / "lm_eval_results")),
        ]

    def ours_killed(self) -> dict[str, float]:
        """What one run of ours repeats after a kill at 90% of its rows."""
        name = "killed"
        shutil.rmtree(self.folder / "outputs" / name, ignore_errors=True)
        command = self.ours(1, name)
        num_finished = int(0.9 * self.num_instances)
        killer = [sys.executable, str(HERE / "lm_eval" / "killed_run.py"), command[-1]]
        killed = subprocess.run(
            [*killer, str(num_finished)],
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if killed.returncode != -signal.SIGKILL:
            raise SystemExit(f"it was not killed: {killed.returncode}\n{killed.stderr[-3000:]}")
        run = self.folder / "outputs" / name
        kept = {row.request_key for row in RunFolder.open(run).iter_completions()}
        self.seconds(command)
        rows = list(RunFolder.open(run).iter_completions())
        total = sum(row.num_output_tokens for row in rows)
        lost_rows = num_finished - len(kept)
        in_engine = min(MAX_NUM_SEQS, self.num_instances - num_finished)
        return {
            "finished_rows": num_finished,
            "kept_rows": len(kept),
            "finished_and_repeated": lost_rows * (total / len(rows)) / total,
            "repeated_at_most": (lost_rows + in_engine) * MAX_TOKENS / total,
        }

    def theirs_killed(self, whole_s: float) -> dict[str, float]:
        """What the harness repeats after a kill at 90% of the time of a whole run."""
        command = [*self.theirs(), "--use_cache", str(self.folder / "cache")]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                process.wait(timeout=0.9 * whole_s)
                raise SystemExit("the harness ended before it was killed")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        again_s = self.seconds(command)
        return {"whole_s": whole_s, "again_s": again_s, "repeated": again_s / whole_s}

    def seconds(self, *commands: Sequence[str]) -> float:
        """How long the commands take, one after another, each to its end."""
        start = time.perf_counter()
        for command in commands:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return time.perf_counter() - start

    def ours_seconds(self, num_arms: int) -> float:
        name = f"ours{num_arms}"
        shutil.rmtree(self.folder / "outputs" / name, ignore_errors=True)
        return self.seconds(self.ours(num_arms, name))


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lm-eval", required=True, help="an interpreter that has lm_eval")
    parser.add_argument("--checkpoint", type=Path, default=Path(".cache/checkpoints/gemma3-270m"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--copies", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        both = Comparison(Path(folder), asked.checkpoint.absolute(), asked.lm_eval, asked.copies)
        first_runs: list[float] = []

        def four_runs() -> float:
            times = [both.seconds(both.theirs()) for _ in range(4)]
            first_runs.append(times[0])
            return sum(times)

        figures = repeated(
            {
                "rel-batch, one arm": lambda: both.ours_seconds(1),
                "lm_eval, four runs": four_runs,
                "rel-batch, four arms": lambda: both.ours_seconds(4),
            },
            repeats=asked.repeats,
        )
        figures = {**figures, "lm_eval, one run": first_runs}
        publish(
            "against_lm_eval",
            {
                "instances": both.num_instances,
                "ours_killed_at_90": both.ours_killed(),
                "theirs_killed_at_90": both.theirs_killed(statistics.median(first_runs)),
                "one_arm_time": ratio(figures, "lm_eval, one run", "rel-batch, one arm"),
                "four_arms_time": ratio(figures, "lm_eval, four runs", "rel-batch, four arms"),
            },
        )


if __name__ == "__main__":
    main()
