"""Kill a writer at any call to the disk: the same command then ends with the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import killed_writer
import pytest

import rel_batch
from rel_batch.records import SCORING_VERSION

ROOT = Path(rel_batch.__file__).parents[1]


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: the test makes a thousand calls to fsync."""
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared_memory) as folder:
        yield Path(folder)


def test_after_a_kill_at_any_call_the_rows_are_those_of_an_undisturbed_run(
    memory_path: Path,
) -> None:
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "store")]
    subprocess.run(
        [sys.executable, killed_writer.__file__, str(memory_path)],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    killed = sorted(memory_path.iterdir(), key=lambda path: int(path.name))
    assert len(killed) > 30
    for path in killed:
        run = killed_writer.bring_to_the_end(path)
        assert list(run.iter_completions()) == killed_writer.COMPLETIONS
        assert list(run.iter_requests()) == killed_writer.REQUESTS
        assert list(run.read_instances()) == killed_writer.INSTANCES
        assert [row.correct for row in run.iter_scores(SCORING_VERSION)] == [True, True]
