"""Signals end a process in good order, and a second SIGINT at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from workers import Watched, config_of, created, keys, planned

from rel_batch.errors import EngineError, LaunchError
from rel_batch.launch.devices import Place
from rel_batch.launch.local import run_locally
from rel_batch.launch.supervisor import _read_error, _Slot
from rel_batch.worker.stopping import StopRequested, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2])
def test_each_of_three_signals_ends_an_interruptible_block(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def wait() -> None:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), number)
            stop.sleep(30)

    with pytest.raises(StopRequested, match=number.name):
        wait()
    assert signal.getsignal(number) is before


def test_a_second_sigint_ends_the_process_at_once() -> None:
    code = (
        "import os, signal\n"
        "from rel_batch.worker.stopping import stop_on_signals\n"
        "with stop_on_signals() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print(stop.reason, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('never reached')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (130, "SIGINT\n")


def test_two_runs_that_are_started_on_one_folder_in_the_same_second_share_the_work(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path)
    watched = [Watched(), Watched()]
    outcomes: list[Any] = []

    def run(progress: Watched) -> None:
        outcomes.append(run_locally(config, progress).num_missing)

    threads = [threading.Thread(target=run, args=(each,)) for each in watched]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert outcomes == [0, 0]
    setup = created(config)
    assert keys(list(setup.run.iter_completions())) == planned(setup)
    assert keys([row for each in watched for row in each.rows]) == planned(setup)


@pytest.mark.parametrize(
    ("said", "code", "kind", "message", "hint"),
    [
        ("ready\nerror: it died\nhint: look\n", 5, EngineError, "it died", "look"),
        ("error: two\nlines\n", 5, EngineError, "two\nlines", None),
        ("Killed\n", 137, LaunchError, "a worker ended with exit code 137: Killed", "worker.log"),
        ("", 1, LaunchError, "a worker ended with exit code 1: it said nothing", "worker.log"),
    ],
)
def test_the_error_of_a_worker_becomes_that_of_the_run(
    tmp_path: Path, said: str, code: int, kind: type[Exception], message: str, hint: str | None
) -> None:
    log = tmp_path / "worker.log"
    log.write_text("error: of an earlier worker\n" + said)
    slot = _Slot(Place(), log, log_start=len("error: of an earlier worker\n"))
    error = _read_error(code, slot)
    assert (type(error), error.message) == (kind, message)
    assert hint is None or hint in str(error.hint)
