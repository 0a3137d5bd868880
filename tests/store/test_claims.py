"""One worker for a chunk: claims are taken once, outlive nobody, and are never lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rel_batch.errors import StoreError
from rel_batch.store.claim_files import release_dead
from rel_batch.store.claims import Claims, new_worker_id
from rel_batch.store.clock import FileClock, file_system_now
from rel_batch.store.survey import read_survey

FAR_AWAY = {"machine": "another machine"}


def join(run: Path, *, timeout_s: float = 100.0, far_away: bool = True) -> Claims:
    """A worker, by default on a machine whose processes nobody here can see."""
    return Claims(run, timeout_s=timeout_s, info=FAR_AWAY if far_away else None)


def age(path: Path, seconds: float) -> None:
    """Make a file or folder, and all that is in it, older."""
    for each in (*(path.iterdir() if path.is_dir() else ()), path):
        then = each.stat().st_mtime - seconds
        os.utime(each, (then, then))


def silent_for(run: Path, worker: Claims, seconds: float) -> None:
    """As if a worker had not been heard of for so long."""
    folder = run / "claims"
    age(folder / f"worker-{worker.worker}.json", seconds)
    for chunk in folder.glob("chunk-*"):
        if (chunk / f"worker-{worker.worker}").exists():
            age(chunk, seconds)


def owners(run: Path) -> dict[int, str]:
    survey = read_survey(run, now=file_system_now(run))
    return {claim.chunk: claim.worker for claim in survey.claims}


def test_a_chunk_that_one_has_is_refused_to_the_others_until_it_is_released(
    tmp_path: Path,
) -> None:
    with join(tmp_path) as one, join(tmp_path) as other:
        assert one.claim(3)
        assert not other.claim(3)
        assert other.claim(4)
        assert owners(tmp_path) == {3: one.worker, 4: other.worker}
        one.release(3)
        assert other.claim(3)
        one.release(3)  # what is not one's own is never released
        assert owners(tmp_path) == {3: other.worker, 4: other.worker}


def test_a_worker_that_leaves_leaves_nothing(tmp_path: Path) -> None:
    with join(tmp_path) as one:
        one.claim(1)
        one.claim(2)
        one.release(2)
    assert list(tmp_path.iterdir()) == []


def test_a_silent_worker_loses_its_chunks_after_the_stated_time_and_hears_of_it(
    tmp_path: Path,
) -> None:
    one, other = join(tmp_path), join(tmp_path)
    assert one.claim(1)
    assert one.claim(2)
    silent_for(tmp_path, one, 90)
    assert not other.claim(1), "too early"
    silent_for(tmp_path, one, 20)
    one._beaten -= 110  # what it remembers of its own last beat
    assert other.claim(1)
    assert one.beat() == {1}
    assert not one.holds(1)
    assert one.holds(2)
    assert not other.claim(2), "it is alive again"
    one.release(1)
    assert owners(tmp_path) == {1: other.worker, 2: one.worker}


def test_a_suspect_loses_its_chunks_to_those_alone_who_have_nothing_else_to_do(
    tmp_path: Path,
) -> None:
    one, other = join(tmp_path), join(tmp_path)
    assert 4 * one.beat_every_s <= one.suspect_after_s < one.timeout_s / 2
    assert one.claim(1)
    assert one.claim(2)
    silent_for(tmp_path, one, one.suspect_after_s - 5)
    assert not other.take_over(1, of_suspect=True), "it may only be late"
    silent_for(tmp_path, one, 10)
    one._beaten -= one.suspect_after_s + 5
    assert not other.take_over(1), "too early for those who have other work"
    assert other.take_over(1, of_suspect=True)
    assert one.beat() == {1}, "it was not dead, and hears of it at once"
    assert one.holds(2)
    assert not other.take_over(2, of_suspect=True), "it is no suspect any more"


def test_a_worker_whose_process_can_be_seen_is_no_suspect(tmp_path: Path) -> None:
    slow, other = join(tmp_path, far_away=False), join(tmp_path, far_away=False)
    assert slow.claim(1)
    silent_for(tmp_path, slow, slow.timeout_s - 5)
    assert not other.take_over(1, of_suspect=True)
    silent_for(tmp_path, slow, 10)
    assert other.take_over(1), "it may have been stopped for good"


def test_times_are_the_file_systems_whatever_the_machine_believes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = join(tmp_path), join(tmp_path)
    assert one.claim(1)
    for wrong in (0.0, 4e9):
        monkeypatch.setattr(time, "time", lambda wrong=wrong: wrong)
        monkeypatch.setattr(time, "monotonic", lambda wrong=wrong: wrong)
        assert not other.claim(1)
        assert one.beat() == frozenset()


def test_a_worker_of_this_machine_that_was_killed_is_taken_over_at_once(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from rel_batch.store.claims import Claims\n"
        "claims = Claims(Path(sys.argv[1]), timeout_s=1e6); assert claims.claim(7)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with join(tmp_path, timeout_s=1e6) as other:
        assert other.claim(7)
        other.sweep()
        assert owners(tmp_path) == {7: other.worker}
        assert len(list((tmp_path / "claims").glob("worker-*.json"))) == 1


def test_a_parent_gives_back_what_a_worker_had_that_it_saw_end(tmp_path: Path) -> None:
    ended, parent = join(tmp_path), join(tmp_path)
    for chunk in range(3):
        assert ended.claim(chunk)
    assert parent.claim(9)
    release_dead(tmp_path, ended.worker)
    assert owners(tmp_path) == {9: parent.worker}
    assert all(parent.claim(chunk) for chunk in range(3))


def test_a_worker_that_died_between_two_steps_blocks_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "claims"
    with join(tmp_path) as worker:
        (folder / "chunk-00001").mkdir()  # its name was unlinked, its folder not yet removed
        (folder / ".claim-gone.tmp").mkdir()  # prepared and not renamed
        assert worker.claim(1)
        assert worker.present() == ({1}, 1)


def test_what_is_no_claim_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "claims"
    folder.mkdir()
    for number in range(1000):
        (folder / f"stray {number}.txt").touch()
    (folder / "chunk-00001.bak").mkdir()
    with join(tmp_path) as worker:
        worker.sweep()
        assert worker.present() == (frozenset(), 1)
        assert worker.claim(1)
    assert len(list(folder.iterdir())) == 1001


def test_strangers_files_in_a_claim_do_not_block_it_for_ever(tmp_path: Path) -> None:
    chunk = tmp_path / "claims" / "chunk-00001"
    chunk.mkdir(parents=True)
    (chunk / "notes.txt").write_text("mine")
    with join(tmp_path) as worker:
        assert not worker.claim(1)
        age(chunk, 101)
        assert worker.claim(1)
    assert [file.read_text() for file in tmp_path.rglob("notes.txt")] == ["mine"]


def test_a_file_in_a_claims_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "chunk-00001").touch()
    with join(tmp_path) as worker, pytest.raises(StoreError, match="chunk-00001 is a file"):
        worker.claim(1)


def test_clearing_the_claims_of_a_run_that_works_costs_the_claims_and_nothing_else(
    tmp_path: Path,
) -> None:
    with join(tmp_path) as worker:
        assert worker.claim(1)
        for file in (tmp_path / "claims").rglob("worker-*"):
            file.unlink()
        assert worker.beat() == {1}
        assert worker.claim(1)
        assert worker.claim(2)


def test_a_run_folder_that_was_removed_is_an_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    worker = join(run)
    run.rename(tmp_path / "elsewhere")
    for act in (worker.beat, lambda: worker.claim(1)):
        with pytest.raises(StoreError, match="not there"):
            act()
    assert not run.exists()


def test_whoever_watches_sees_workers_claims_and_their_ages(tmp_path: Path) -> None:
    clock = FileClock()
    with join(tmp_path) as worker:
        worker.claim(5)
        silent_for(tmp_path, worker, 30)
        survey = read_survey(tmp_path, now=clock.touch(tmp_path))
    (record,), (claim,) = survey.workers, survey.claims
    assert (record.worker, claim.worker, claim.chunk) == (worker.worker, worker.worker, 5)
    assert record.info["pid"] == os.getpid()
    assert 30 <= record.heartbeat_age_s < 60
    assert 30 <= claim.age_s < 60


def _takers(run: Path, barrier: Any, results: Any, chunks: int) -> None:
    with join(run) as worker:
        barrier.wait()
        got = [chunk for chunk in range(chunks) if worker.claim(chunk)]
        results.put(got)
        barrier.wait()  # nobody leaves before all have tried


@pytest.mark.parametrize("stale", [False, True])
def test_of_many_that_want_the_same_chunks_at_once_each_chunk_gets_one(
    tmp_path: Path, stale: bool
) -> None:
    chunks, takers = 40, 4
    if stale:
        dead = join(tmp_path)
        assert all(dead.claim(chunk) for chunk in range(chunks))
        silent_for(tmp_path, dead, 1000)
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(takers), context.Queue()
    processes = [
        context.Process(target=_takers, args=(tmp_path, barrier, results, chunks))
        for _ in range(takers)
    ]
    for process in processes:
        process.start()
    taken = Counter(chunk for _ in processes for chunk in results.get(timeout=60))
    for process in processes:
        process.join(60)
    assert taken == Counter(range(chunks))


def test_ids_are_never_given_twice() -> None:
    assert len({new_worker_id() for _ in range(100)}) == 100


def test_what_a_worker_says_of_itself_is_json(tmp_path: Path) -> None:
    with Claims(tmp_path, timeout_s=1, info={"devices": "0,1"}) as worker:
        file = tmp_path / "claims" / f"worker-{worker.worker}.json"
        assert json.loads(file.read_text())["devices"] == "0,1"
