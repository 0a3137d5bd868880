"""Two workers on the real vLLM with a tiny checkpoint, one of them killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rel_batch.config import validate_config
from rel_batch.launch import local
from rel_batch.store import RunFolder
from rel_batch.store.claim_files import CLAIMS
from rel_batch.store.clock import file_system_now
from rel_batch.store.survey import read_survey

pytestmark = pytest.mark.engine


class Silent:
    def say(self, message: str) -> None: ...

    def begin(self, total: int, finished: int) -> None: ...

    def completed(self, completion: object) -> None: ...

    def scored(self, tally: object) -> None: ...

    def end(self) -> None: ...


CONFIG = """
run: two
model: {{path: {checkpoint}}}
instances: {{tasks: [REL-A1, REL-C1, REL-C2]}}
engine: {{cpu_kv_cache_gib: 1, max_in_flight: 4}}
arms: [{{name: format, max_tokens: 48}}, {{name: free, constraint: none, max_tokens: 48}}]
store: {{flush_rows: 2}}
"""


def started(folder: Path, checkpoint: Path, *, workers: int) -> subprocess.Popen[str]:
    config = folder / "two.yaml"
    config.write_text(CONFIG.format(checkpoint=checkpoint), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-m", "rel_batch", "run", str(config), "--workers", str(workers)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_of_two_workers_one_is_killed_and_the_rows_are_the_plan(
    tmp_path: Path, tiny_llama: Path
) -> None:
    run = tmp_path / "outputs" / "two"
    with started(tmp_path, tiny_llama, workers=2) as parent:
        deadline = time.monotonic() + 900
        killed = False
        while not killed and parent.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            if list(run.glob("completions/chunk-*")) and (run / CLAIMS).is_dir():
                workers = read_survey(run, now=file_system_now(run)).workers
                if len(workers) == 2:
                    os.kill(workers[0].info["pid"], signal.SIGKILL)
                    killed = True
        assert parent.stderr is not None
        said = parent.stderr.read()
        assert parent.wait(timeout=900) == 0, said
    assert killed
    assert "was killed by SIGKILL; another one starts" in said
    completions = list(RunFolder.open(run).iter_completions())
    planned = {request.key for request in RunFolder.open(run).iter_requests()}
    assert len(completions) == len(planned)
    assert {row.request_key for row in completions} == planned
    assert {row.status for row in completions} <= {"ok", "truncated"}
    assert not list((run / CLAIMS).glob("chunk-*"))
    assert _session_is_empty(parent.pid)


def test_an_engine_that_is_killed_is_started_again_and_no_row_is_lost(
    tmp_path: Path, tiny_llama: Path
) -> None:
    run = tmp_path / "outputs" / "two"
    with started(tmp_path, tiny_llama, workers=1) as parent:
        deadline = time.monotonic() + 900
        while not list(run.glob("completions/chunk-*")):
            assert parent.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (engine,) = [pid for pid in _session_members(parent.pid) if b"EngineCore" in _name(pid)]
        os.kill(engine, signal.SIGKILL)
        assert parent.stderr is not None
        said = parent.stderr.read()
        assert parent.wait(timeout=900) == 0, said
    assert "vLLM's engine died" in said
    assert "a new one starts in" in said
    completions = list(RunFolder.open(run).iter_completions())
    assert {row.request_key for row in completions} == {
        request.key for request in RunFolder.open(run).iter_requests()
    }
    assert {row.status for row in completions} <= {"ok", "truncated"}
    assert _session_is_empty(parent.pid)


def _session_members(session: int) -> list[int]:
    stats = Path("/proc").glob("[0-9]*/stat")
    return [int(stat.parent.name) for stat in stats if _session_of(stat) == session]


def _name(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _session_is_empty(session: int) -> bool:
    """Whether no process of the session is left a little later."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not any(_session_of(stat) == session for stat in Path("/proc").glob("[0-9]*/stat")):
            return True
        time.sleep(0.2)
    return False


def _session_of(stat: Path) -> int | None:
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[3])


def test_an_engine_that_was_started_before_the_plan_does_the_run(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_takes_long_to_plan", lambda *_: True)
    config = validate_config(
        {
            "run": "early",
            "output_dir": str(tmp_path),
            "model": {"path": str(tiny_llama)},
            "instances": {"tasks": ["REL-C1"]},
            "engine": {"cpu_kv_cache_gib": 1},
            "arms": [{"name": "format"}],
        },
        "test",
    )
    outcome = local.run_locally(config, Silent())
    rows = list(outcome.run.iter_completions())
    assert outcome.num_missing == 0
    assert {row.status for row in rows} == {"ok"}
    said = (config.folder / "logs" / "worker-0.log").read_text(encoding="utf-8")
    assert said.count("starting vllm") == 1
    assert "engine ready" in said
