"""Merging parts changes how many files there are, and nothing that a reader sees, whatever dies."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from example_runs import completion, instance, new_run, request
from killed_writer import dying_at_call

from rel_batch.errors import StoreError
from rel_batch.records import SCORING_VERSION, Completion
from rel_batch.scoring import score_part, score_run
from rel_batch.store import RunFolder
from rel_batch.store.compaction import compact
from rel_batch.store.parts import list_parts

ARMS = ("none", "format")
NUM_CHUNKS = 3


def row(number: int, arm: str, **changes: Any) -> Completion:
    settings = {"reply": "2" if number % 3 else "7", "chunk": number % NUM_CHUNKS, **changes}
    return completion(number, arm=arm, **settings)


def build(path: Path, *, num: int = 12, scored: bool = True) -> RunFolder:
    """A finished run of three chunks and two arms, each chunk in parts of two rows."""
    instances = [instance(number) for number in range(num)]
    requests = [request(n, arm=arm, chunk=n % NUM_CHUNKS) for n in range(num) for arm in ARMS]
    run = new_run(path, instances=instances, requests=requests)
    for chunk in range(NUM_CHUNKS):
        rows = [row(n, arm) for n in range(chunk, num, NUM_CHUNKS) for arm in ARMS]
        for start in range(0, len(rows), 2):
            run.publish_part(chunk, rows[start : start + 2])
    if scored:
        score_run(run)
    return run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return build(tmp_path / "run")


def rows_of(run: RunFolder) -> list[Completion]:
    return sorted(run.iter_completions(), key=lambda row: row.request_key)


def scores_of(run: RunFolder) -> dict[str, bool | None]:
    return {c.request_key: s and s.correct for c, s in run.iter_scored(SCORING_VERSION)}


def names(run: RunFolder) -> list[str]:
    return [path.name for path in run.completion_parts()]


def score_names(run: RunFolder) -> list[str]:
    return sorted(os.listdir(run.score_folder(SCORING_VERSION)))


MERGED = ["arm-format.part-00.parquet", "arm-none.part-00.parquet"]


def test_what_is_merged_is_one_sorted_file_for_each_arm_with_the_same_rows(run: RunFolder) -> None:
    before, scores, schema = rows_of(run), scores_of(run), pq.read_schema(run.completion_parts()[0])
    done = compact(run)
    assert (done.num_before, done.num_after, done.num_rows, done.num_unscored) == (12, 2, 24, 0)
    assert names(run) == score_names(run) == MERGED
    assert rows_of(run) == before
    assert scores_of(run) == scores
    assert run.unscored_parts(SCORING_VERSION, ["upstream"]) == []
    assert {score.correct for score in run.iter_scores(SCORING_VERSION)} == {True, False}
    for path, arm in zip(run.completion_parts(), sorted(ARMS), strict=True):
        rows = list(run.read_part(path))
        assert {row.arm for row in rows} == {arm}
        assert rows == sorted(rows, key=lambda row: (row.chunk, row.instance_key, row.sample))
        assert pq.read_schema(path).equals(schema)


def test_a_run_that_is_merged_is_left_alone(run: RunFolder) -> None:
    compact(run)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*.parquet")}
    assert compact(run).num_rows == 0
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*.parquet")} == before


def test_a_run_without_rows_or_scores_can_be_merged(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    assert compact(run).num_after == 0
    run.publish_part(0, [completion(0)])
    assert compact(run).num_after == 1
    assert score_run(run).rows == 1


def test_a_resume_finds_what_was_merged(run: RunFolder) -> None:
    keys = run.finished_keys()
    compact(run)
    assert run.finished_keys() == keys
    assert run.finished_keys(chunk=1) == {r.key for r in run.iter_requests(chunk=1)}


def test_what_is_published_after_a_merge_never_gets_a_name_that_was_there(run: RunFolder) -> None:
    before = set(names(run))
    compact(run)
    part = run.publish_part(0, [row(0, "none", reply="late"), row(0, "again")])
    assert part.name not in before
    assert part.name < run.publish_part(0, [row(0, "more")]).name
    # The row that was merged counts.
    assert [r.reply for r in run.iter_completions() if r.request_key == "r0-none"] == ["7"]
    score_run(run)
    compact(run)
    assert names(run) == [
        "arm-again.part-01.parquet",
        "arm-format.part-01.parquet",
        "arm-more.part-01.parquet",
        "arm-none.part-01.parquet",
    ]
    assert len(rows_of(run)) == 26
    assert None not in scores_of(run).values()


def test_the_row_that_counts_is_merged(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    run.publish_part(0, [completion(0, reply="first"), completion(1)])
    run.publish_part(0, [completion(0, reply="second"), completion(2), completion(2)])
    before = rows_of(run)
    assert compact(run).num_rows == 3
    assert rows_of(run) == before


def test_a_part_that_only_repeats_what_was_merged_is_removed(run: RunFolder) -> None:
    compact(run)
    run.publish_part(0, [row(0, "none"), row(3, "none")])
    assert compact(run).num_rows == 0
    assert names(run) == MERGED


def test_a_chunk_with_a_part_that_is_not_scored_is_left(run: RunFolder) -> None:
    late = run.publish_part(1, [row(13, "format", instance_key="i1")])
    done = compact(run)
    assert done.num_unscored == 5
    assert {path.name[:11] for path in run.completion_parts()[2:]} == {"chunk-00001"}
    assert [path.name for path in run.unscored_parts(SCORING_VERSION)] == [late.name]
    score_run(run)
    assert compact(run).num_after == 2
    assert len(scores_of(run)) == 25


def test_scores_of_another_version_are_merged_too(run: RunFolder) -> None:
    shutil.copytree(run.score_folder(SCORING_VERSION), run.score_folder("0"))
    before = sorted(s.request_key for s in run.iter_scores("0"))
    compact(run)
    assert sorted(s.request_key for s in run.iter_scores("0")) == before


def test_extras_that_all_scores_have_are_kept(run: RunFolder) -> None:
    part = run.completion_parts()[0]
    score_part(run.path, part, audited=True)
    compact(run)
    assert run.unscored_parts(SCORING_VERSION, ["upstream"]) == []
    assert len(run.unscored_parts(SCORING_VERSION, ["audited"])) == 2


def test_a_reader_that_has_begun_gets_each_row_once(run: RunFolder) -> None:
    for read in (
        lambda: (c.request_key for c in run.iter_completions()),
        lambda: (c.request_key for c, s in run.iter_scored(SCORING_VERSION) if s is not None),
        lambda: (s.request_key for s in run.iter_scores(SCORING_VERSION)),
    ):
        expected = sorted(read())
        reader = read()
        given = [next(reader) for _ in range(7)]
        compact(run)
        assert sorted([*given, *reader]) == expected
        run.publish_part(0, [row(0, "none")])
        score_run(run)


def test_scoring_a_part_that_was_merged_meanwhile_is_no_error(run: RunFolder) -> None:
    part = run.completion_parts()[0]
    compact(run)
    assert score_part(run.path, part).rows == 0
    assert score_names(run) == MERGED


def test_nothing_is_removed_where_other_rows_are_read_back(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rel_batch.store import compaction

    before = names(run)
    write = compaction.write_merged

    def lossy(*args: Any) -> Any:
        new, num_rows = write(*args)
        table = pq.read_table(new[0])
        metadata = {**table.schema.metadata, b"rel_batch.num_rows": b"11"}
        pq.write_table(table.slice(1).replace_schema_metadata(metadata), new[0])
        return new, num_rows

    monkeypatch.setattr(compaction, "write_merged", lossy)
    with pytest.raises(StoreError, match="is not the 24 scored rows that were written"):
        compact(run)
    assert names(run)[2:] == before


def test_a_file_that_was_not_merged_by_us_is_an_error(run: RunFolder) -> None:
    compact(run)
    path = run.completion_parts()[0]
    table = pq.read_table(path)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table.sort_by([("chunk", "descending")]))
        writer.add_key_value_metadata({"rel_batch.num_rows": str(table.num_rows)})
    with pytest.raises(StoreError, match="holds rows of chunk 1 after those of chunk 2"):
        list(run.iter_completions())


def test_row_groups_are_cut_by_rows_and_files_by_size(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(run)
    monkeypatch.setattr("rel_batch.store.merging._GROUP_ROWS", 4)
    monkeypatch.setattr("rel_batch.store.merging._FILE_BYTES", 1000)
    compact(run)
    assert names(run) == [f"arm-{a}.part-0{n}.parquet" for n in range(3) for a in sorted(ARMS)]
    assert rows_of(run) == before
    assert None not in scores_of(run).values()
    assert compact(run).num_rows == 0


# Kills and company.


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    path = Path(f"/dev/shm/{tmp_path.name}-{os.getpid()}")
    path.mkdir()
    yield path
    shutil.rmtree(path)


def test_after_a_kill_at_any_call_every_row_and_score_is_there_once(memory_path: Path) -> None:
    whole = build(memory_path / "whole", num=6)
    expected, scores = rows_of(whole), scores_of(whole)
    number = 0
    while True:
        path = memory_path / f"killed{number}"
        shutil.copytree(whole.path, path)
        ended = dying_at_call(number, lambda path=path: compact(RunFolder.open(path)))
        run = RunFolder.open(path)
        assert rows_of(run) == expected
        assert scores_of(run) == scores
        assert len(run.finished_keys()) == len(expected)
        compact(run)
        assert rows_of(run) == expected
        assert scores_of(run) == scores
        assert len(names(run)) == 2
        left = [name for name in score_names(run) if name.startswith("chunk-")]
        assert left == []
        shutil.rmtree(path)
        if ended:
            break
        number += 1
    assert number > 30


def test_readers_publishers_and_compactions_do_not_disturb_each_other(memory_path: Path) -> None:
    run = build(memory_path / "run")
    first = {r.request_key for r in run.iter_completions()}
    stop = threading.Event()
    errors: list[BaseException] = []

    def loop(act: Any) -> None:
        try:
            while not stop.is_set():
                act()
        except BaseException as error:
            errors.append(error)
            stop.set()

    published = list(range(100, 160))

    def publish() -> None:
        if not published:
            stop.set()
            return
        number = published.pop()
        part = run.publish_part(number % NUM_CHUNKS, [row(number, "none", instance_key="i0")])
        score_part(run.path, part)

    def read() -> None:
        keys = [r.request_key for r in run.iter_completions()]
        assert len(keys) == len(set(keys))
        assert first <= set(keys)
        assert first <= run.finished_keys()
        scored = {c.request_key for c, s in run.iter_scored(SCORING_VERSION) if s is not None}
        assert first <= scored

    actions = [publish, read, read, lambda: compact(run), lambda: compact(run)]
    threads = [threading.Thread(target=loop, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    score_run(run)
    compact(run)
    assert len(rows_of(run)) == 24 + 60
    assert {name.split(".")[0] for name in names(run)} == {"arm-format", "arm-none"}
    assert None not in scores_of(run).values()
    assert len(score_names(run)) == len(names(run))


def test_a_list_of_files_never_misses_what_is_merged_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A listing that was begun before the merged file appeared and ended after the part had gone.
    part, merged = "chunk-00000.part-00.parquet", "arm-a.part-00.parquet"
    tables = [[], [merged], [merged]]
    for seen in (tables, [[part], *tables]):
        listings = iter(seen)
        monkeypatch.setattr("rel_batch.store.parts.file_names", lambda _: next(listings))  # noqa: B023
        assert [path.name for path in list_parts(tmp_path).files] == [merged]


def test_rows_of_random_duplicates_are_merged_as_they_are_read(tmp_path: Path) -> None:
    dice = random.Random(5)
    run = new_run(tmp_path / "run", num_instances=8)
    for attempt in range(12):
        numbers = dice.choices(range(8), k=3)
        run.publish_part(0, [completion(n, reply=f"{attempt}") for n in numbers])
        if dice.random() < 0.3:
            before = rows_of(run)
            compact(run)
            assert rows_of(run) == before
