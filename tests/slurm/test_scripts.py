"""The scripts: what is rendered is pinned by golden files, and what is kept is what is rendered."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from kept_scripts import FOLDER, kept_scripts

from rel_batch.launch.slurm_script import Placement, render_array, render_report
from rel_batch.slurm_settings import SlurmConfig, SlurmReportConfig

GOLDEN = Path(__file__).parent / "golden"
PLACE = Placement.of_run(Path("/data/my runs/night"), ["/opt/venv/bin/python", "-m", "rel_batch"])
FULL = SlurmConfig(
    tasks=32,
    throttle=8,
    gpus_per_task=2,
    cpus_per_task=16,
    mem="64G",
    time="8:00:00",
    partition="gpu",
    account="project-17",
    qos="low",
    constraint="a100|h100",
    nodelist="node[1-4]",
    max_requeues=3,
    setup=("module load cuda/12.9", "source ~/venv/bin/activate"),
    sbatch={"mail-type": "FAIL", "exclusive": True, "gres": "gpu:h100:2", "comment": "a b"},
    report=SlurmReportConfig(partition="cpu", time="30", mem="8G", sbatch={"qos": "short"}),
)
RENDERED = {
    "array_full.sbatch": render_array(FULL, PLACE, after="afterany:4710"),
    "array_default.sbatch": render_array(SlurmConfig(), PLACE),
    "array_cpu.sbatch": render_array(SlurmConfig(tasks=4, gpus_per_task=0, time="10"), PLACE),
    "array_over_nodes.sbatch": render_array(SlurmConfig(tasks=2, nodes_per_task=2), PLACE),
    "report_full.sbatch": render_report(FULL, PLACE, array_job="4711"),
    "report_default.sbatch": render_report(SlurmConfig(), PLACE, array_job="4711"),
}


@pytest.mark.parametrize("name", RENDERED)
def test_a_script_is_what_its_golden_file_says(name: str) -> None:
    assert RENDERED[name] == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", kept_scripts())
def test_a_script_that_is_kept_is_what_is_rendered(name: str) -> None:
    # Else: python tests/slurm/kept_scripts.py
    assert kept_scripts()[name] == (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "script", [*sorted(GOLDEN.glob("*.sbatch")), *sorted(FOLDER.iterdir())], ids=lambda p: p.name
)
def test_a_script_is_a_script_of_bash(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.parametrize("text", RENDERED.values(), ids=RENDERED)
def test_every_directive_comes_before_the_first_command(text: str) -> None:
    # sbatch ignores, without a word, what comes later.
    lines = text.splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert all(line.startswith("#") for line in lines[: last + 1])


def test_a_path_is_safe_from_the_shell_and_from_sbatch() -> None:
    place = Placement.of_run(Path("/data/100% $(reboot) 'x'"), ["python"])
    script = render_array(SlurmConfig(), place)
    assert "run='/data/100% $(reboot) '\"'\"'x'\"'\"''" in script
    assert "/data/100%% $(reboot) 'x'/logs/%x-%A_%a.log\"" in script
    word = re.search(r"^run=(.*)$", script, re.MULTILINE)
    assert word is not None
    said = subprocess.run(
        ["bash", "-c", f"printf %s {word[1]}"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "/data/100% $(reboot) 'x'"


def test_a_name_has_no_blanks_or_slashes() -> None:
    # It becomes a part of the log's name.
    assert " " not in Placement.of_run(Path("/data/my runs/night"), ["x"]).name


@pytest.mark.parametrize(
    ("sbatch", "present", "absent"),
    [
        ({"requeue": False}, "--open-mode", "--requeue"),
        ({"time": "1"}, "--time=1", "--time=4:00:00"),
        ({"hold": True}, "#SBATCH --hold\n", "--hold="),
        ({"gres": False}, "--time", "--gres"),
    ],
)
def test_an_option_of_sbatch_replaces_ours(
    sbatch: dict[str, str | bool | int], present: str, absent: str
) -> None:
    script = render_array(SlurmConfig(sbatch=sbatch), PLACE)
    assert present in script
    assert absent not in script
