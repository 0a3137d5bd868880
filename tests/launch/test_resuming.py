"""A run that is there is gone on with by the plan that is in its folder, if it is the same run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from workers import Watched, config_of

import rel_batch.instances
from rel_batch.errors import StoreError
from rel_batch.launch import prepare
from rel_batch.launch.local import run_locally

BUNDLED = Path(rel_batch.instances.__file__).parent / "bundled"


def settings_of(folder: Path) -> dict[str, Any]:
    """A config on a file of instances that a test may change."""
    source = folder / "REL-C1.jsonl"
    if not source.exists():
        source.write_bytes((BUNDLED / "REL-C1.jsonl").read_bytes())
    return {"instances": {"source": str(source)}}


def test_a_run_that_is_there_is_not_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, **settings_of(tmp_path))
    first = run_locally(config, Watched())
    for part in (first.run.path / "completions").iterdir():
        part.unlink()
    before = [request.key for request in first.run.iter_requests()]
    monkeypatch.setattr(prepare, "plan_requests", None)
    watched = Watched()
    second = run_locally(config, watched)
    assert second.num_missing == 0
    assert sorted(row.request_key for row in watched.rows) == sorted(before)
    assert f"planned already: {len(before)} requests, of which {len(before)}" in watched.said[0]


def test_a_prompt_that_was_changed_on_disk_is_refused_and_nothing_is_run(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    config = config_of(tmp_path, **settings)
    run_locally(config, Watched())
    source = Path(settings["instances"]["source"])
    lines = source.read_text().splitlines()
    record = json.loads(lines[0])
    record["question"] += " Think twice."
    source.write_text("\n".join([json.dumps(record), *lines[1:]]))
    watched = Watched()
    with pytest.raises(StoreError, match="instances"):
        run_locally(config, watched)
    assert not watched.rows


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 5}, "seed"),
        ({"arms": [{"name": "free", "constraint": "none", "max_tokens": 9}]}, "max_tokens"),
        ({"arms": [{"name": "free", "constraint": "format"}]}, "constraint"),
        ({"model": {"path": "another"}}, "model.name"),
    ],
)
def test_what_the_plan_was_made_from_must_be_what_is_here(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    settings = settings_of(tmp_path)
    run_locally(config_of(tmp_path, **settings), Watched())
    with pytest.raises(StoreError, match=told):
        run_locally(config_of(tmp_path, **{**settings, **changes}), Watched())


def test_what_a_worker_left_that_died_with_all_of_its_rows_on_disk_is_cleared_away(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path, **settings_of(tmp_path))
    path = run_locally(config, Watched()).run.path
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from rel_batch.store.claims import Claims\n"
        "claims = Claims(Path(sys.argv[1]), timeout_s=1e6); assert claims.claim(0)\n"
        "claims.flight.enter('a request'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = sorted(file.name.partition("-")[0] for file in (path / "claims").iterdir())
    assert left == ["chunk", "flight", "worker"]
    assert run_locally(config, Watched()).num_missing == 0
    # What it may have died of is remembered.
    assert all(file.name.startswith("death-") for file in (path / "claims").glob("*"))
