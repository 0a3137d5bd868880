"""A run's status is read from its files alone, while it goes on, is merged, and when it is over."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from example_runs import completion, instance, new_run, request
from rich.console import Console

from rel_batch.cli import main
from rel_batch.cli.status_view import render_status
from rel_batch.records import Completion
from rel_batch.scoring import score_run
from rel_batch.status import RunStatus, Watcher
from rel_batch.store import RunFolder, compact
from rel_batch.store.claims import Claims

# Four chunks of ten requests; a worker needs 100 s for each and writes 4 tokens/s.
PER_CHUNK = 10
NUM_CHUNKS = 4
CHUNK_S = 100.0
NOW = 1_796_000_000.0


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    num = PER_CHUNK * NUM_CHUNKS
    requests = [request(number, chunk=number // PER_CHUNK) for number in range(num)]
    return new_run(
        tmp_path / "night", instances=[instance(n) for n in range(num)], requests=requests
    )


def publish(
    run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
    *,
    ended: float,
    worker: str = "w0",
    num: int = PER_CHUNK,
    **changes: Any,
) -> None:
    first = chunk * PER_CHUNK
    settings = {"num_output_tokens": 40, "num_prompt_tokens": 0, **changes}
    rows: list[Completion] = [
        completion(n, chunk=chunk, **settings) for n in range(first, first + num)
    ]
    with monkeypatch.context() as patch:
        patch.setattr("rel_batch.store.run_folder.time.time", lambda: ended)
        run.publish_part(chunk, rows, worker=worker, started=ended - CHUNK_S)


def work_at(run: RunFolder, worker: str, *chunks: int, heartbeat: float = NOW) -> Claims:
    claims = Claims(run.path, timeout_s=120.0, worker=worker)
    assert all(map(claims.claim, chunks))
    for path in (run.path / "claims").rglob("*"):
        os.utime(path, (heartbeat, heartbeat))
    return claims


def shown(found: RunStatus, width: int = 100) -> list[str]:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(render_status(found, width))
    lines = console.export_text().splitlines()
    console.file.close()
    assert max(map(len, lines)) <= width
    return lines


def test_a_run_without_workers_waits(run: RunFolder) -> None:
    found = Watcher(run).look(NOW)
    assert (found.num_requests, found.num_rows, dict(found.statuses)) == (40, 0, {})
    assert (found.chunks.done, found.chunks.claimed, found.chunks.waiting) == (0, 0, 4)
    assert (found.eta_s, found.share_done, found.workers) == (None, 0.0, ())
    assert shown(found)[-1].startswith("no worker is there")


def test_chunks_rows_claims_and_speeds_are_told(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(run, monkeypatch, 0, ended=NOW - 10)
    publish(run, monkeypatch, 1, ended=NOW - 10, worker="w1", num=5, status="truncated")
    work_at(run, "w0", 2, heartbeat=NOW - 30)
    work_at(run, "w1", 1, heartbeat=NOW - 30)
    found = Watcher(run).look(NOW)
    assert dict(found.statuses) == {"ok": 10, "truncated": 5}
    assert (found.chunks.done, found.chunks.claimed, found.chunks.waiting) == (1, 2, 1)
    first, second = found.workers
    assert (first.worker, first.state, first.claims) == ("w0", "alive", {2: 30.0})
    assert (first.heartbeat_age_s, first.num_rows) == (30.0, 10)
    assert (first.tokens_per_s_now, first.tokens_per_s) == (4.0, 4.0)
    assert second.tokens_per_s == 2.0
    assert (found.tokens_per_s_now, found.tokens_per_s) == (6.0, 6.0)
    # 25 rows of 40 tokens at 6 tokens/s.
    assert found.eta_s == pytest.approx(1000 / 6)
    assert found.disk.completions > 1000
    assert found.disk.free > 0
    text = "\n".join(shown(found))
    for words in (
        "15 of 40 rows",
        "1 done, 2 claimed, 1 waiting",
        "ok 10, truncated 5",
        "6 tokens/s now, 6 on average",
        "2:47, until",
        "2 (30 s)",
        "30 s ago",
    ):
        assert words in text


def test_a_worker_that_was_not_heard_of_is_late_and_one_that_left_is_gone(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(run, monkeypatch, 0, ended=NOW - 200, worker="left")
    work_at(run, "late", 1, heartbeat=NOW - 130)
    found = Watcher(run).look(NOW)
    assert [(w.worker, w.state) for w in found.workers] == [("late", "late"), ("left", "gone")]
    assert (found.tokens_per_s_now, found.tokens_per_s, found.eta_s) == (0.0, 4.0, None)
    text = "\n".join(shown(found))
    assert "2:10 ago LATE" in text
    assert "1 worker has left" in text
    assert "unknown: nothing moves" in text


def test_time_without_any_worker_does_not_count_for_the_average(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(run, monkeypatch, 0, ended=NOW - 80_000, worker="yesterday")
    publish(run, monkeypatch, 1, ended=NOW - 50, worker="a")
    publish(run, monkeypatch, 2, ended=NOW, worker="b")
    # 1,200 tokens in 100 s and, where two overlap, in 150 s.
    assert Watcher(run).look(NOW).tokens_per_s == pytest.approx(1200 / 250)


def test_what_is_left_is_weighed_by_task_and_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [request(n, chunk=n // 2, arm=("quick", "slow")[n // 2]) for n in range(4)]
    run = new_run(tmp_path / "run", num_instances=4, requests=requests)
    with monkeypatch.context() as patch:
        patch.setattr("rel_batch.store.run_folder.time.time", lambda: NOW)
        for number, tokens in ((0, 10), (2, 990)):
            row = completion(number, chunk=number // 2, arm=("quick", "slow")[number // 2],
                             num_prompt_tokens=0, num_output_tokens=tokens)  # fmt: skip
            run.publish_part(number // 2, [row], worker="w", started=NOW - 100)
    work_at(run, "w", 0)
    found = Watcher(run).look(NOW)
    assert found.share_done == pytest.approx(0.5)
    assert found.eta_s == pytest.approx(100.0)


def test_looking_again_counts_what_is_new_and_merging_changes_nothing(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher(run)
    publish(run, monkeypatch, 0, ended=NOW - 100)
    assert watcher.look(NOW).num_rows == 10
    publish(run, monkeypatch, 0, ended=NOW, num=3)  # again: a slow worker
    publish(run, monkeypatch, 1, ended=NOW)
    before = watcher.look(NOW)
    assert before.num_rows == 20
    score_run(run)
    compact(run)
    after = watcher.look(NOW)
    fresh = Watcher(run).look(NOW)
    for found in (after, fresh):
        assert (found.num_rows, found.chunks.done) == (20, 2)
        assert found.statuses == before.statuses
        assert found.tokens_per_s == pytest.approx(before.tokens_per_s)
        assert [w.num_rows for w in found.workers] == [23]


def test_a_complete_run_is_complete(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for chunk in range(NUM_CHUNKS):
        publish(run, monkeypatch, chunk, ended=NOW)
    found = Watcher(run).look(NOW)
    assert (found.complete, found.eta_s, found.share_done) == (True, 0.0, 1.0)
    assert any("nothing: complete" in line for line in shown(found))


def test_half_made_folders_and_stray_files_are_no_claims(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(run, monkeypatch, 0, ended=NOW)
    work_at(run, "w0", 1)
    claims = run.path / "claims"
    (claims / "chunk-00002").mkdir()
    (claims / "chunk-00003").write_text("a file")
    (claims / "worker-broken.json").write_bytes(b"{half")
    (claims / "notes.txt").write_text("mine")
    (claims / "chunk-00099").mkdir()
    (claims / "chunk-00099" / "worker-w0").touch()  # of no chunk in the plan
    found = Watcher(run).look(NOW)
    assert (found.chunks.done, found.chunks.claimed, found.chunks.waiting) == (1, 1, 2)
    assert {w.worker for w in found.workers} == {"w0", "broken"}


@pytest.mark.parametrize("width", [30, 44, 70, 120])
@pytest.mark.parametrize("num_workers", [1, 40])
def test_no_line_is_wider_than_the_terminal(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, width: int, num_workers: int
) -> None:
    for number in range(num_workers):
        name = f"a-rather-long-host-name-{number:03}-gpu7"
        publish(run, monkeypatch, number % NUM_CHUNKS, ended=NOW, worker=name)
        Claims(run.path, timeout_s=120.0, worker=name)
    lines = shown(Watcher(run).look(time.time()), width)
    assert any(re.search(r"and 16 more workers", line) for line in lines) == (num_workers == 40)


def test_the_command_prints_json_lines_and_writes_nothing(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for chunk in range(NUM_CHUNKS):
        publish(run, monkeypatch, chunk, ended=time.time())
    before = sorted(run.path.rglob("*"))
    monkeypatch.setattr("sys.argv", ["rel-batch", "status", str(run.path), "--json", "--watch"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (None, 0)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["complete"] is True
    assert sorted(run.path.rglob("*")) == before


def test_the_compact_command_scores_and_merges(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run, monkeypatch, 0, ended=NOW)
    publish(run, monkeypatch, 1, ended=NOW)
    monkeypatch.setattr("sys.argv", ["rel-batch", "compact", str(run.path)])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out == "2 files before, 1 now; 20 rows merged\n"
