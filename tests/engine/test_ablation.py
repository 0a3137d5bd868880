"""An ablation of five arms on the real vLLM with a tiny checkpoint: from a config to a report."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from rel_batch.instances.generate import generate, render_record
from rel_batch.store import RunFolder
from rel_batch.tasks import TASKS, task_for

pytestmark = pytest.mark.engine

CONFIG = """
run: ablation
model: {{path: {checkpoint}}}
instances: {{source: [bundled, long.jsonl], limit: 1, taxa_notation: names}}
engine: {{cpu_kv_cache_gib: 1}}
arms:
  - {{name: none, constraint: none, max_tokens: 16}}
  - {{name: format, max_tokens: 32, measure_distortion: true}}
  - {{name: json, constraint: json, max_tokens: 32}}
  - {{name: syntax, constraint: syntax, max_tokens: 32}}
  - {{name: think, max_tokens: 32, thinking: prompted, thinking_budget: 16}}
"""
KINDS = {"none": "none", "format": "format", "json": "json", "syntax": "syntax", "think": "format"}
# What four arms may cost of one arm's prefill on REL-B's long prompts.
MOST = 1.25


def rel_batch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rel_batch", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    """A folder with a finished run and its report."""
    folder = tmp_path_factory.mktemp("ablation")
    (folder / "ablation.yaml").write_text(CONFIG.format(checkpoint=tiny_llama), encoding="utf-8")
    records = generate("REL-B1", rc=[2], per_level=1, seed=1, size=49)
    (folder / "long.jsonl").write_text("".join(render_record(r) + "\n" for r in records))
    done = rel_batch(folder, "run", "ablation.yaml")
    logs = (folder / "outputs" / "ablation" / "logs").glob("*.log")
    assert done.returncode == 0, done.stderr + "".join(log.read_text()[-3000:] for log in logs)
    assert done.stderr.count("arm syntax is left out for ") == 1
    written = rel_batch(folder, "report", "outputs/ablation", "-o", "report")
    assert (written.returncode, written.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> RunFolder:
    return RunFolder.open(folder / "outputs" / "ablation")


def test_every_instance_has_a_row_of_each_arm_that_means_something_for_its_task(
    run: RunFolder,
) -> None:
    rows = [(c.instance_key, c.arm) for c in run.iter_completions()]
    expected = {
        (instance.key, arm)
        for instance in run.iter_instances()
        for arm, kind in KINDS.items()
        if kind in task_for(instance.task).constraint_kinds
    }
    assert set(rows) == expected
    assert len(rows) == len(expected)
    assert {c.task for c in run.iter_completions()} == set(TASKS)


def test_four_arms_on_a_long_prompt_cost_at_most_a_quarter_more_prefill_than_one(
    run: RunFolder,
) -> None:
    long = {i.key for i in run.iter_instances() if i.source_file == "long.jsonl"}
    rows = [c for c in run.iter_completions() if c.instance_key in long]
    assert len(rows) == 4
    one = max(c.num_prompt_tokens for c in rows)
    assert one > 3_000
    assert sum(c.num_prompt_tokens - c.num_cached_tokens for c in rows) <= MOST * one


def test_the_report_has_every_part_of_the_ablation(folder: Path) -> None:
    report = folder / "report"
    page = (report / "report.html").read_text(encoding="utf-8")
    for section in ("answer", "complexity", "comparison", "effects", "failures", "browse"):
        assert f'<section id="{section}">' in page
    assert "Arm syntax is left out for " in page
    assert (report / "report.md").exists()
    assert {file.stem for file in (report / "figures").glob("*.svg")} == {"scores", "rc_curves"}
    with (report / "tables" / "answer.csv").open(newline="") as file:
        assert [row["arm"] for row in csv.DictReader(file)] == list(KINDS)
    with (report / "tables" / "comparisons.csv").open(newline="") as file:
        pairs = {(row["baseline"], row["arm"]) for row in csv.DictReader(file)}
    assert pairs == {("none", arm) for arm in KINDS if arm != "none"}
    with (report / "tables" / "effects.csv").open(newline="") as file:
        effects = list(csv.DictReader(file))
    for effect in effects:
        constrained = effect["arm"] != "none"
        assert bool(effect["backend"]) is constrained
        assert bool(effect["compile_ms"]) is constrained
        assert bool(effect["overruled"]) is (effect["arm"] == "format")
        assert float(effect["tokens_per_s"]) > 0
