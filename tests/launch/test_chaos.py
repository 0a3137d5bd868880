"""Law 6 on whole runs: kill anything at any moment, and the rows are those of an undisturbed run.

`benchmarks/chaos.py` does it as often as asked; here it does so a few times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import rel_batch

ROOT = Path(rel_batch.__file__).parents[1]


def test_whatever_is_killed_the_run_ends_with_the_rows_of_an_undisturbed_one(
    tmp_path: Path,
) -> None:
    flags = ["--kills", "15", "--delay-s", "0.02", "--pause-s", "0.2", "--forked"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "chaos.py"), *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["problems"] == []
    assert result["kills"] >= 15
