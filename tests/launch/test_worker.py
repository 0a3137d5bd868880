"""What a worker does with a run, and what it does when something dies."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from workers import REMOTE, Watched, config_of, created, keys, planned, reply, worker_of

from rel_batch.config import StoreConfig
from rel_batch.engine import EngineDiedError
from rel_batch.engine.fake import FakeEngine, FakeReply
from rel_batch.errors import ConfigError, EngineError, StoreError
from rel_batch.launch.joining import Supervised, join_run
from rel_batch.records import Completion, Request
from rel_batch.store import RunFolder
from rel_batch.store.claim_files import CLAIMS
from rel_batch.store.claims import Claims
from rel_batch.worker import FailureLimit, Stop, StopRequested
from rel_batch.worker.supply import wants_more


def no_claim_is_left(run: RunFolder) -> bool:
    return not [f for f in (run.path / CLAIMS).glob("*") if not f.name.startswith("death-")]


def test_a_worker_gives_every_request_one_row_and_leaves_no_claim(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path))
    with Claims(setup.run.path, timeout_s=9) as claims:
        worker_of(setup, claims=claims).work()
    rows = list(setup.run.iter_completions())
    assert keys(rows) == planned(setup)
    assert {row.reply for row in rows} == {f"reply to {row.request_key}" for row in rows}
    assert not (setup.run.path / CLAIMS).exists()
    assert setup.counted_again().num_missing == 0


def test_two_workers_share_a_run_and_repeat_nothing(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path))
    served: Counter[str] = Counter()
    by_worker: Counter[int] = Counter()

    def work(number: int) -> None:
        def slow(request: Request) -> FakeReply:
            served[request.planned.key] += 1
            by_worker[number] += 1
            return FakeReply("x", delay_s=0.005)

        with Claims(setup.run.path, timeout_s=9) as claims:
            worker_of(setup, slow, claims=claims).work()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(served) == planned(setup)
    assert set(served.values()) == {1}
    assert min(by_worker[0], by_worker[1]) > len(served) // 5
    assert no_claim_is_left(setup.run)


class NeverDrains(FakeEngine):
    """An engine of 4 slots that notes how many were busy whenever one finished."""

    def __init__(self) -> None:
        super().__init__(reply)
        self.busy: list[int] = []

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        source, slots, exhausted = iter(requests), list[Request](), False
        while True:
            while len(slots) < 4 and not exhausted:
                request = next(source, "end")
                exhausted = request == "end"
                if not isinstance(request, Request):
                    break
                slots.append(request)
            if not slots:
                return
            self.busy.append(len(slots))
            yield from super().generate([slots.pop(0)])


def test_the_engine_never_drains_between_two_chunks(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path))
    assert len(setup.index.sizes) > 3
    engine = NeverDrains()
    with Claims(setup.run.path, timeout_s=9) as claims:
        worker_of(setup, lambda: engine, loads_engine=True, claims=claims).work()
    assert set(engine.busy[:-4]) == {4}


def test_with_others_a_worker_claims_less_ahead_the_less_is_free() -> None:
    assert wants_more(0, 0, 1000)
    assert all(wants_more(held, 1, 1) for held in (0, 1, 1e9)), "alone it takes all"
    for num_workers in (2, 8, 1000):
        held = [max(h for h in range(10_000) if wants_more(h, f, num_workers)) for f in (9000, 900)]
        assert all(a > b for a, b in pairwise(held))


def test_a_chunk_half_done_by_a_dead_worker_is_finished_from_what_is_missing(
    tmp_path: Path,
) -> None:
    setup = created(config_of(tmp_path, store={"flush_rows": 1}))

    def dies_after_ten(request: Request) -> FakeReply:
        if len(served) == 10:
            raise KeyboardInterrupt
        served.append(request.planned.key)
        return reply(request)

    served: list[str] = []
    claims = Claims(setup.run.path, timeout_s=50, info=REMOTE)
    claims.close = lambda: None  # type: ignore[method-assign]  # as if killed
    with pytest.raises(KeyboardInterrupt):
        worker_of(setup, dies_after_ten, claims=claims).work()
    assert list((setup.run.path / CLAIMS).glob("chunk-*"))
    for file in (setup.run.path / CLAIMS).rglob("*"):
        os.utime(file, (1e9, 1e9))
    later: list[str] = []
    with Claims(setup.run.path, timeout_s=50) as other:
        other.sweep()
        worker_of(setup, lambda r: later.append(r.planned.key) or reply(r), claims=other).work()
    assert sorted(served + later) == planned(setup)
    assert no_claim_is_left(setup.run)


def test_a_worker_that_lost_its_chunks_drops_what_others_do_now(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path, store={"flush_rows": 1000}))
    slow = Claims(setup.run.path, timeout_s=50, info=REMOTE)
    taken: list[int] = []

    def loses_its_first_chunk(request: Request) -> FakeReply:
        if not taken:
            taken.append(request.planned.chunk)
            # Suspended for an hour; meanwhile another worker takes over.
            folder = setup.run.path / CLAIMS
            for file in folder.rglob("*"):
                os.utime(file, (1e9, 1e9))
            slow._beaten -= 3600
            other = Claims(setup.run.path, timeout_s=50)
            assert other.claim(taken[0])
            slow.beat()
            other.close()
        return reply(request)

    worker_of(setup, loses_its_first_chunk, claims=slow).work()
    assert keys(list(setup.run.iter_completions())) == planned(setup)
    assert setup.run.count_rows(setup.run.completion_parts()) == len(planned(setup))


def test_the_chunk_of_a_suspect_is_done_last_and_without_waiting_for_its_time_out(
    tmp_path: Path,
) -> None:
    setup = created(config_of(tmp_path))
    suspect = Claims(setup.run.path, timeout_s=120, info=REMOTE)
    chunk, size = next(iter(setup.index.sizes.items()))
    assert suspect.claim(chunk)
    a_minute_ago = time.time() - 60
    for file in (setup.run.path / CLAIMS).rglob("*"):
        os.utime(file, (a_minute_ago, a_minute_ago))
    served: list[int] = []
    with Claims(setup.run.path, timeout_s=120) as claims:
        worker_of(setup, lambda r: served.append(r.planned.chunk) or reply(r), claims=claims).work()
    assert served[-size.num_requests :] == [chunk] * size.num_requests
    assert len(served) == len(planned(setup))


def test_what_others_have_finished_meanwhile_keeps_nobody_from_the_chunk_of_a_suspect(
    tmp_path: Path,
) -> None:
    """Near the end a thousand workers finish chunks all the time, each of which looks free."""
    setup = created(config_of(tmp_path))
    suspect = Claims(setup.run.path, timeout_s=120, info=REMOTE)
    chunk, size = next(iter(setup.index.sizes.items()))
    assert suspect.claim(chunk)
    all_but_that = replace(setup, finished={chunk: size.num_requests})
    with Claims(setup.run.path, timeout_s=120) as another:
        worker_of(all_but_that, claims=another).work()
    a_minute_ago = time.time() - 60
    for file in (setup.run.path / CLAIMS).rglob("*"):
        os.utime(file, (a_minute_ago, a_minute_ago))

    class Hurried(Stop):
        def sleep(self, seconds: float) -> None:
            pytest.fail(f"it waited for {seconds} s")

    served: list[int] = []
    with Claims(setup.run.path, timeout_s=120) as claims:
        replies = partial(_noted, served)
        worker_of(setup, replies, claims=claims, stop=Hurried()).work()
    assert served == [chunk] * size.num_requests


def _noted(served: list[int], request: Request) -> FakeReply:
    served.append(request.planned.chunk)
    return reply(request)


# Isolation.


class Dying:
    """Engines that die of some requests, whatever else is in them."""

    def __init__(self, *poison: str) -> None:
        self.poison = poison
        self.started = 0

    def __call__(self) -> FakeEngine:
        self.started += 1
        return FakeEngine(lambda request: FakeReply("x", dies=request.planned.key in self.poison))


def test_a_request_that_kills_engines_is_run_alone_and_then_quarantined(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path))
    poison = planned(setup)[7]
    engines, watched = Dying(poison), Watched()
    with Claims(setup.run.path, timeout_s=9) as claims:
        worker_of(setup, engines, loads_engine=True, claims=claims, say=watched.say).work()
    rows = {row.request_key: row for row in setup.run.iter_completions()}
    assert sorted(rows) == planned(setup)
    assert [key for key, row in rows.items() if row.status == "engine_error"] == [poison]
    assert "died three times" in str(rows[poison].error)
    assert engines.started == 4, "two deaths, one alone, and the rest"
    assert any("a new one starts in" in line for line in watched.said)


def test_requests_that_only_stood_beside_it_get_their_rows(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path))
    poison = planned(setup)[3]

    class Batch(FakeEngine):
        def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
            source = iter(requests)
            while True:
                batch: list[Request] = []
                ended = False
                while len(batch) < 6:
                    request = next(source, "end")
                    if not isinstance(request, Request):
                        ended = request == "end"
                        break
                    batch.append(request)
                if any(request.planned.key == poison for request in batch):
                    raise EngineDiedError("CUDA error: an illegal memory access")
                yield from super().generate(batch)
                if ended:
                    return

    with Claims(setup.run.path, timeout_s=9) as claims:
        worker_of(setup, lambda: Batch(reply), loads_engine=True, claims=claims).work()
    failed = [row for row in setup.run.iter_completions() if row.status != "ok"]
    assert [row.request_key for row in failed] == [poison]
    assert "illegal memory access" in str(failed[0].error)
    assert setup.counted_again().num_missing == 0


def test_engines_that_die_of_everything_end_the_worker_with_its_rows_and_claims_put_away(
    tmp_path: Path,
) -> None:
    setup = created(config_of(tmp_path))

    with (
        Claims(setup.run.path, timeout_s=9) as claims,
        pytest.raises(EngineError, match="died 5 times without a new row"),
    ):
        worker_of(setup, lambda: FailsToAnswer(reply), loads_engine=True, claims=claims).work()
    assert no_claim_is_left(setup.run)


class FailsToAnswer(FakeEngine):
    """Dies before it looks at a request."""

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        del requests
        raise EngineDiedError("the device fell off the bus")


def test_what_cannot_run_ends_as_a_row_without_an_engine(tmp_path: Path) -> None:
    model = {"path": "none", "max_model_len": 1100}
    setup = created(config_of(tmp_path, model=model))

    def never() -> FakeEngine:
        raise AssertionError("no engine is needed")

    with Claims(setup.run.path, timeout_s=9) as claims:
        worker_of(setup, never, loads_engine=True, claims=claims).work()
    rows = list(setup.run.iter_completions())
    assert keys(rows) == planned(setup)
    assert {row.status for row in rows} == {"too_long"}


@pytest.mark.parametrize(
    ("limit", "failures", "stops"),
    [
        ("3", 3, False),
        ("3", 4, True),
        ("0", 1, True),
        ("10%", 5, False),
        ("10%", 30, True),
        ("100%", 62, False),
        (None, 62, False),
    ],
)
def test_max_failures_stops_a_run_that_goes_wrong_and_keeps_its_rows(
    tmp_path: Path, limit: str | None, failures: int, stops: bool
) -> None:
    setup = created(config_of(tmp_path))
    wrong = set(planned(setup)[:failures])

    def answer(request: Request) -> FakeReply:
        broken = request.planned.key in wrong
        return FakeReply("x", finish_reason="error" if broken else None)

    with Claims(setup.run.path, timeout_s=9) as claims:
        worker = worker_of(setup, answer, claims=claims, limit=FailureLimit.parse(limit))
        if stops:
            with pytest.raises(
                EngineError, match=r"goes wrong: \d+ of \d+ new rows failed \(engine"
            ):
                worker.work()
            assert list(setup.run.iter_completions())
        else:
            worker.work()
            assert setup.counted_again().num_missing == 0


@pytest.mark.parametrize("text", ["", "-1", "5 %", "101%", "many", "1e3"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-failures"):
        FailureLimit.parse(text)


# Stopping.


def test_a_stop_publishes_what_has_finished_and_gives_the_claims_back(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path))
    stop, served = Stop(), list[str]()

    def stops_at_ten(request: Request) -> FakeReply:
        if len(served) == 10:
            stop.request("SIGTERM")
        served.append(request.planned.key)
        return reply(request)

    with Claims(setup.run.path, timeout_s=9) as claims:
        with pytest.raises(StopRequested, match="SIGTERM"):
            worker_of(setup, stops_at_ten, claims=claims, stop=stop).work()
        assert not list((setup.run.path / CLAIMS).glob("chunk-*"))
    assert keys(list(setup.run.iter_completions())) == sorted(served[:10])


def test_a_stop_while_the_engine_loads_ends_the_load(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path))
    stop = Stop()

    def load() -> FakeEngine:
        stop.request("SIGUSR2")
        raise AssertionError("it is interrupted here")

    with Claims(setup.run.path, timeout_s=9) as claims, pytest.raises(StopRequested):
        worker_of(setup, load, loads_engine=True, claims=claims, stop=stop).work()
    assert no_claim_is_left(setup.run)


def test_a_stop_waits_for_the_end_of_what_must_not_be_left_half_done() -> None:
    stop, done = Stop(), list[str]()

    def publish() -> None:
        with stop.interruptible():
            with stop.shielded():
                stop.request("SIGINT")
                done.append("published")
            done.append("never reached")

    with pytest.raises(StopRequested):
        publish()
    assert done == ["published"]


def test_a_request_to_stop_before_a_block_ends_it_at_its_beginning() -> None:
    stop = Stop()
    stop.request("SIGTERM")
    with pytest.raises(StopRequested), stop.interruptible():
        raise AssertionError("never reached")


# Faults.


def test_a_disk_that_is_full_during_a_publish_is_named_and_nothing_is_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = created(config_of(tmp_path, store={"flush_rows": 5}))
    real, calls = os.fsync, list[int]()

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if "completions" in os.readlink(f"/proc/self/fd/{descriptor}") and len(calls) > 8:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with (
        Claims(setup.run.path, timeout_s=9) as claims,
        pytest.raises(StoreError, match="no space is left"),
    ):
        worker_of(setup, claims=claims).work()
    monkeypatch.undo()
    before = keys(list(setup.run.iter_completions()))
    assert 0 < len(before) < len(planned(setup))
    assert not list((setup.run.path / "completions").glob(".*"))
    with Claims(setup.run.path, timeout_s=9) as claims:
        worker_of(setup, claims=claims).work()
    assert keys(list(setup.run.iter_completions())) == planned(setup)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda part: part.write_bytes(part.read_bytes()[:-100]), "is damaged"),
        (lambda part: part.write_bytes(b""), "is damaged"),
        (lambda part: _write_other_schema(part), "has another schema"),
    ],
    ids=["truncated", "empty", "another schema"],
)
def test_a_part_that_is_not_what_it_was_stops_the_worker_with_its_name(
    tmp_path: Path, damage: Any, told: str
) -> None:
    setup = created(config_of(tmp_path))
    with Claims(setup.run.path, timeout_s=9) as claims:
        worker_of(setup, claims=claims).work()
    part = setup.run.completion_parts()[0]
    damage(part)
    with (
        Claims(setup.run.path, timeout_s=9) as claims,
        pytest.raises(StoreError, match=told) as error,
    ):
        worker_of(setup, claims=claims).work()
    assert part.name in str(error.value)
    part.unlink()
    with Claims(setup.run.path, timeout_s=9) as claims:
        worker_of(setup, claims=claims).work()
    assert keys(list(setup.run.iter_completions())) == planned(setup)


def _write_other_schema(part: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"request_key": ["x"]}), part)


@pytest.mark.parametrize("what", ["completions", CLAIMS])
def test_a_folder_that_may_not_be_written_is_named_and_nothing_is_lost(
    open_path: Path, what: str
) -> None:
    setup = created(config_of(open_path))
    for name in ("completions", CLAIMS):
        (setup.run.path / name).mkdir(exist_ok=True)
        (setup.run.path / name).chmod(0o555 if name == what else 0o777)
    before = sorted(setup.run.path.rglob("*"))

    def work() -> None:
        with Claims(setup.run.path, timeout_s=9) as claims:
            worker_of(setup, claims=claims).work()

    error = _as_nobody(work)
    assert error.startswith("StoreError: cannot ")
    assert str(setup.run.path / what) in error
    assert "permission is denied" in error
    assert sorted(setup.run.path.rglob("*")) == before
    (setup.run.path / what).chmod(0o755)
    work()
    assert keys(list(setup.run.iter_completions())) == planned(setup)


def test_a_run_is_not_created_where_nothing_may_be_written(open_path: Path) -> None:
    open_path.chmod(0o555)
    error = _as_nobody(lambda: created(config_of(open_path)))
    assert error.startswith(f"StoreError: cannot create the folder {open_path / 'run'}: permission")
    assert not list(open_path.iterdir())


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user may enter; that of pytest only its owner may."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _as_nobody(act: Callable[[], None]) -> str:
    """What an action raises, done by a user whom permissions bind: root may write everywhere."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing was wrong"
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            act()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read().decode()


def test_a_run_folder_that_is_removed_is_an_error_and_does_not_come_back(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path, store={"flush_rows": 1}))
    served: list[str] = []

    def removes(request: Request) -> FakeReply:
        served.append(request.planned.key)
        if len(served) == 5:
            setup.run.path.rename(tmp_path / "elsewhere")
        return reply(request)

    claims = Claims(setup.run.path, timeout_s=9)
    with pytest.raises(StoreError, match="not there"):
        worker_of(setup, removes, claims=claims).work()
    assert not setup.run.path.exists()


def test_a_thousand_stray_files_change_nothing(tmp_path: Path) -> None:
    setup = created(config_of(tmp_path))
    for folder in ("completions", CLAIMS, "logs", "."):
        (setup.run.path / folder).mkdir(exist_ok=True)
        for number in range(250):
            (setup.run.path / folder / f"stray {number}.parquet").write_bytes(b"x")
    with Claims(setup.run.path, timeout_s=9) as claims:
        worker_of(setup, claims=claims).work()
    assert keys(list(setup.run.iter_completions())) == planned(setup)


# Joining.


def test_a_worker_joins_with_nothing_but_the_folder_and_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = created(config_of(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    watched = Watched()
    # Its parts are scored by another process.
    supervised = Supervised({}, wait_for_plan=lambda: None)
    outcome = join_run(setup.run.path, watched, supervised=supervised)
    assert outcome.num_missing == 0
    assert keys(watched.rows) == planned(setup)
    assert join_run(setup.run.path, Watched(), supervised=supervised).num_missing == 0


def test_the_settings_of_claims_have_defaults_that_nfs_can_bear() -> None:
    assert StoreConfig().claim_timeout_s >= 2 * 60
