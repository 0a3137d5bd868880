"""A request that takes its worker's whole process with it does not do so for ever."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from workers import REMOTE, config_of, created, keys, planned, reply, worker_of

from rel_batch.engine.fake import FakeReply
from rel_batch.launch.setup import Setup
from rel_batch.launch.supervisor import _end_of
from rel_batch.records import Request
from rel_batch.store.claim_files import CLAIMS, release_dead
from rel_batch.store.claims import Claims
from rel_batch.store.flight import Flight, bury, read_flight


def lives(setup: Setup, poison: str, number: signal.Signals, *, watched: bool) -> int:
    """How many workers it takes to complete the run, if one ends by a signal at that request.

    With `watched` a parent sees each of them end; without, the next one finds its traces.
    """

    def answer(request: Request) -> FakeReply:
        if request.planned.key == poison:
            os.kill(os.getpid(), number)
        return reply(request)

    # Once here, or each child would import what is only imported on use.
    setup.counted_again()
    for life in range(1, 10):
        child = os.fork()
        if child == 0:
            signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
            with Claims(setup.run.path, timeout_s=50, worker=f"w{life}") as claims:
                claims.sweep()
                worker_of(setup, answer, claims=claims).work()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return life
        assert -code == number
        if watched:
            release_dead(setup.run.path, f"w{life}", _end_of(code))
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("number", "watched", "needed"),
    [
        (signal.SIGSEGV, True, 4),
        (signal.SIGABRT, True, 4),
        # Who kills without a reason that is seen may be a person: it takes two more.
        (signal.SIGKILL, True, 6),
        (signal.SIGSEGV, False, 6),
    ],
)
def test_a_request_that_ends_its_worker_is_run_alone_and_then_quarantined(
    tmp_path: Path, number: signal.Signals, watched: bool, needed: int
) -> None:
    setup = created(config_of(tmp_path, instances={"limit": 1}))
    poison = planned(setup)[7]
    assert lives(setup, poison, number, watched=watched) == needed
    rows = {row.request_key: row for row in setup.run.iter_completions()}
    assert sorted(rows) == planned(setup)
    assert [key for key, row in rows.items() if row.status == "engine_error"] == [poison]
    assert "the worker" in str(rows[poison].error)
    left = {file.name.split("-")[0] for file in (setup.run.path / CLAIMS).iterdir()}
    assert left == {"death"}


def test_a_machine_that_goes_silent_is_no_requests_fault(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path))
    gone = Claims(setup.run.path, timeout_s=50, worker="gone", info=REMOTE)
    assert gone.claim(0)
    gone.flight.enter(planned(setup)[0])
    for file in (setup.run.path / CLAIMS).rglob("*"):
        os.utime(file, (1e9, 1e9))
    with Claims(setup.run.path, timeout_s=50) as claims:
        claims.sweep()
        assert not list((setup.run.path / CLAIMS).glob("*gone*"))
        worker_of(setup, claims=claims).work()
    assert keys(list(setup.run.iter_completions())) == planned(setup)


def test_a_flight_holds_what_was_handed_out_and_is_not_back(tmp_path: Path) -> None:
    flight = Flight(tmp_path, "w")
    flight.enter("a")
    flight.enter("b")
    flight.leave("a")
    flight.enter("c", alone=True)
    file = tmp_path / "flight-w"
    assert read_flight(file) == {"b": False, "c": True}
    for number in range(10_000):
        flight.enter(f"key {number}")
        flight.leave(f"key {number}")
    assert read_flight(file) == {"b": False, "c": True}
    assert file.stat().st_size < 100_000, "what is done is dropped"
    with file.open("a") as half:
        half.write("+half a li")
    assert read_flight(file) == {"b": False, "c": True}
    bury(tmp_path, "w", "killed")
    assert [found.name for found in tmp_path.iterdir()] == ["death-w.killed"]
    bury(tmp_path, "w", "killed")  # another one was faster


def test_a_worker_that_ends_well_leaves_no_flight(tmp_path: Path) -> None:
    flight = Flight(tmp_path, "w")
    flight.enter("a")
    flight.close()
    flight.leave("a")
    assert not list(tmp_path.iterdir())
