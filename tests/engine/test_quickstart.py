"""The quick start as the README gives it: a real 270M checkpoint on the bundled instances."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rel_batch.records import SCORING_VERSION
from rel_batch.store import RunFolder
from rel_batch.tasks import TASKS

pytestmark = pytest.mark.engine

QUICKSTART = Path(__file__).parents[2] / "configs" / "quickstart.yaml"


def test_the_quick_start_ends_with_a_scored_row_for_every_request(
    demo_checkpoint: Path, tmp_path: Path
) -> None:
    model = f"model.path={demo_checkpoint}"
    done = subprocess.run(
        [sys.executable, "-m", "rel_batch", "run", str(QUICKSTART), "--set", model],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = RunFolder.open(tmp_path / "outputs" / "quickstart")
    completions = list(run.iter_completions())
    assert {c.request_key for c in completions} == {r.key for r in run.iter_requests()}
    assert {c.status for c in completions} <= {"ok", "truncated"}
    assert all(c.constraint_held for c in completions if c.status == "ok")
    scores = list(run.iter_scores(SCORING_VERSION))
    assert len(scores) == len(completions)
    assert all(task in done.stdout for task in TASKS)
    # What a format constraint admits as a whole can always be read.
    complete = {c.request_key for c in completions if c.status == "ok"}
    assert not [s for s in scores if s.request_key in complete and s.verdict == "unparsed"]
