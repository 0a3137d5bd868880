"""A run folder gives back what was put into it, whoever else writes there at the same time."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from example_runs import MANIFEST, completion, instance, new_run, request
from hypothesis import given, settings
from hypothesis import strategies as st

from rel_batch.errors import StoreError
from rel_batch.records import Instance, PlannedRequest
from rel_batch.store import RunFolder


def part_names(run: RunFolder) -> list[str]:
    return [part.name for part in run.completion_parts()]


# What was planned.


def test_instances_and_requests_come_back_in_their_order(tmp_path: Path) -> None:
    instances = [instance(2), instance(0), instance(1)]
    requests = [request(1, seed=7), request(0, sample=1), request(2)]
    run = new_run(tmp_path / "run", instances=instances, requests=requests)
    assert run.read_instances() == tuple(instances)
    assert list(run.iter_requests()) == requests
    assert RunFolder.open(tmp_path / "run").manifest == run.manifest


def test_the_requests_of_a_chunk_are_found(tmp_path: Path) -> None:
    requests = [request(number, chunk=number % 3) for number in range(9)]
    run = new_run(tmp_path / "run", num_instances=9, requests=requests)
    assert list(run.iter_requests(chunk=1)) == [requests[1], requests[4], requests[7]]
    assert list(run.iter_requests(chunk=5)) == []


def test_what_was_planned_is_counted_by_task_subset_and_arm(tmp_path: Path) -> None:
    instances = [instance(0), instance(1, subset="9x9"), instance(2)]
    requests = [request(n, arm=arm) for n in range(3) for arm in ("none", "format")]
    run = new_run(tmp_path / "run", instances=instances, requests=requests)
    assert run.count_planned() == {
        ("REL-A1", "3x3", "none"): 2,
        ("REL-A1", "3x3", "format"): 2,
        ("REL-A1", "9x9", "none"): 1,
        ("REL-A1", "9x9", "format"): 1,
    }


def test_a_lone_surrogate_in_a_question_is_an_error_that_shows_where(tmp_path: Path) -> None:
    bad = Instance("k", "id", "REL-A1", "all", "Which \ud800", {}, {}, 2, 9, "f")
    with pytest.raises(StoreError, match=r"lone surrogate \(U\+D800\) after 'Which '"):
        new_run(tmp_path / "run", instances=[bad], requests=[])


# Parts.


def test_completions_come_back(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    rows = [completion(0), completion(1, reply="", output_token_ids=(), finish_reason=None)]
    assert run.publish_part(0, rows).name == "chunk-00000.part-00.parquet"
    assert list(run.iter_completions()) == rows
    assert run.finished_keys() == {"r0-format", "r1-format"}


def test_the_token_ids_can_be_left_out(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    run.publish_part(0, [completion(0)])
    (read,) = run.iter_completions(omit=["output_token_ids"])
    assert read == completion(0, output_token_ids=())


def test_parts_are_numbered_and_ordered_as_numbers(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    for _ in range(101):
        run.publish_part(7, [completion(0, chunk=7)])
    run.publish_part(100_000, [completion(0, chunk=100_000)])
    names = part_names(run)
    assert names[:2] == ["chunk-00007.part-00.parquet", "chunk-00007.part-01.parquet"]
    assert names[-2:] == ["chunk-00007.part-100.parquet", "chunk-100000.part-00.parquet"]
    assert run.finished_keys(chunk=3) == set()
    assert len(run.completion_parts(chunk=7)) == 101


def test_the_first_row_of_a_key_counts_and_stays(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    run.publish_part(0, [completion(0, reply="first"), completion(1)])
    run.publish_part(0, [completion(0, reply="second"), completion(2), completion(2)])
    assert [row.reply for row in run.iter_completions()] == ["first", "2", "2"]
    assert [row.request_key for row in run.iter_completions()] == [
        "r0-format",
        "r1-format",
        "r2-format",
    ]


def test_two_workers_never_take_the_same_part(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", num_instances=40)
    start = threading.Barrier(8)

    def publish(worker: int) -> None:
        start.wait()
        for number in range(5):
            run.publish_part(0, [completion(worker * 5 + number)])

    threads = [threading.Thread(target=publish, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(run.completion_parts()) == 40
    assert len(list(run.iter_completions())) == 40


@pytest.mark.parametrize("rows", [[], [completion(0, chunk=1)]], ids=["none", "of another chunk"])
def test_a_part_has_rows_of_its_chunk(tmp_path: Path, rows: list[object]) -> None:
    run = new_run(tmp_path / "run")
    with pytest.raises(ValueError, match="chunk 0"):
        run.publish_part(0, rows)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=25)
@given(replies=st.lists(st.text(st.characters(exclude_categories=[])), min_size=1, max_size=4))
def test_any_reply_is_kept_and_only_lone_surrogates_are_replaced(
    tmp_path_factory: pytest.TempPathFactory, replies: list[str]
) -> None:
    run = new_run(tmp_path_factory.mktemp("run") / "run")
    run.publish_part(0, [completion(number, reply=text) for number, text in enumerate(replies)])
    for text, row in zip(replies, run.iter_completions(), strict=True):
        assert row.reply == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") or (
            row.reply == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
        )
        assert (row.error is None) == (row.reply == text)


def test_a_replaced_surrogate_is_noted_beside_the_error_that_was_there(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    run.publish_part(0, [completion(0, reply="a\udc80b", error="odd")])
    (row,) = run.iter_completions()
    assert row.reply == "a\ufffdb"
    assert row.error == "odd; lone surrogates in reply were replaced by U+FFFD"


# What goes wrong.


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = new_run(tmp_path / "run")
    run.publish_part(0, [completion(0), completion(1)])
    return run


def test_a_truncated_part_is_an_error_that_says_what_to_do(run: RunFolder) -> None:
    (part,) = run.completion_parts()
    part.write_bytes(part.read_bytes()[:-100])
    for read in (run.finished_keys, lambda: list(run.iter_completions())):
        with pytest.raises(StoreError, match=r"chunk-00000\.part-00\.parquet is damaged") as raised:
            read()
        assert raised.value.hint is not None
        assert raised.value.hint.startswith("Move the file out of the run folder")


def test_the_requests_of_a_part_that_was_moved_away_are_missing_again(run: RunFolder) -> None:
    run.publish_part(0, [completion(2)])
    run.completion_parts()[0].unlink()
    assert run.finished_keys() == {"r2-format"}


@pytest.mark.parametrize("content", [b"", b"garbage", b"PAR1" + b"\0" * 50 + b"PAR1"])
def test_garbage_is_an_error(run: RunFolder, content: bytes) -> None:
    run.completion_parts()[0].write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        list(run.iter_completions())


def test_no_flipped_bit_in_the_data_gives_other_rows_and_none_makes_rows_vanish(
    run: RunFolder,
) -> None:
    rows = list(run.iter_completions())
    (part,) = run.completion_parts()
    whole = part.read_bytes()
    start_of_footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for position in range(0, len(whole), 13):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        part.write_bytes(flipped)
        try:
            read = list(run.iter_completions())
        except StoreError as error:
            assert part.name in error.message  # noqa: PT017
        else:
            assert len(read) == len(rows)
            assert position >= start_of_footer or read == rows


def test_a_part_with_another_schema_is_an_error_that_shows_both(run: RunFolder) -> None:
    (part,) = run.completion_parts()
    pq.write_table(pa.table({"request_key": ["r0"], "reply": ["2"]}), part)
    with pytest.raises(StoreError, match=r"another schema: expected completions/1 .*found none"):
        run.finished_keys()


def test_a_part_of_another_version_is_an_error(run: RunFolder) -> None:
    (part,) = run.completion_parts()
    table = pq.read_table(part)
    metadata = {**table.schema.metadata, b"rel_batch.schema": b"completions/2"}
    pq.write_table(table.replace_schema_metadata(metadata), part)
    with pytest.raises(StoreError, match="found completions/2"):
        list(run.iter_completions())


def test_a_part_under_the_name_of_another_chunk_is_an_error(run: RunFolder) -> None:
    (part,) = run.completion_parts()
    part.rename(part.with_name("chunk-00003.part-00.parquet"))
    with pytest.raises(StoreError, match="holds a row of chunk 0"):
        list(run.iter_completions())


def test_a_thousand_stray_files_change_nothing(run: RunFolder) -> None:
    folder = run.path / "completions"
    for number in range(250):
        (folder / f".chunk-00000.part-{number:02d}.parquet.ab12.tmp").write_bytes(b"half")
        (folder / f"chunk-{number}.part-0.parquet").write_bytes(b"other name")
        (folder / f"chunk-00000.part-{number:02d}.parquet~").write_bytes(b"editor")
        (folder / f"chunk-00000.part-{number:02d}.parquet.crdownload").mkdir()
    assert part_names(run) == ["chunk-00000.part-00.parquet"]
    assert len(list(run.iter_completions())) == 2
    assert run.publish_part(0, [completion(2)]).name == "chunk-00000.part-01.parquet"


@pytest.mark.parametrize("call", ["fsync", "link"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_failed_publish_leaves_the_run_as_it_was_and_can_be_repeated(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    before = sorted(run.path.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(f"rel_batch.store.disk.os.{call}", fail)
        with pytest.raises(StoreError, match=r"cannot write .*part-01\.parquet"):
            run.publish_part(0, [completion(2)])
    assert sorted(run.path.rglob("*")) == before
    run.publish_part(0, [completion(2)])
    assert len(list(run.iter_completions())) == 3


def test_a_removed_folder_is_an_error_and_does_not_come_back(run: RunFolder) -> None:
    shutil.rmtree(run.path)
    for act in (
        run.finished_keys,
        run.read_instances,
        lambda: list(run.iter_requests()),
        lambda: run.publish_part(0, [completion(2)]),
    ):
        with pytest.raises(StoreError, match="not there"):
            act()
    assert not run.path.exists()


# Creating.


def endless_requests() -> Iterator[PlannedRequest]:
    yield request(0)
    raise KeyboardInterrupt


def test_an_interrupted_creation_is_no_run_and_is_completed_by_the_same_command(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        RunFolder.create(path, MANIFEST, [instance(0)], endless_requests())
    with pytest.raises(StoreError, match="there is no run"):
        RunFolder.open(path)
    run = RunFolder.create_or_resume(path, MANIFEST, [instance(0)], [request(0)])
    assert list(run.iter_requests()) == [request(0)]
    assert list(path.glob(".*")) == []


def test_a_resume_reads_no_plan_and_changes_nothing(run: RunFolder) -> None:
    before = {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}
    again = RunFolder.create_or_resume(run.path, MANIFEST, [], endless_requests())
    assert again == run
    assert {p: p.stat().st_mtime_ns for p in run.path.rglob("*")} == before


def test_a_run_is_not_created_twice(run: RunFolder) -> None:
    with pytest.raises(StoreError, match="is a run already"):
        RunFolder.create(run.path, MANIFEST, [], [])


@pytest.mark.parametrize("name", ["thesis.tex", "completions", "instances.parquet"])
def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(StoreError, match=rf"has no manifest\.json and holds {name}"):
        new_run(tmp_path)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["logs", ".nfs0001"])
def test_a_folder_with_logs_or_hidden_files_becomes_a_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert new_run(tmp_path).path == tmp_path


@pytest.mark.parametrize("other_seed", [1, 2], ids=["same run", "another run"])
def test_of_two_creators_in_the_same_second_one_decides(tmp_path: Path, other_seed: int) -> None:
    for attempt in range(20):
        path = tmp_path / f"run{attempt}"
        start = threading.Barrier(2)
        created: dict[int, RunFolder | StoreError] = {}

        def create(
            who: int,
            seed: int,
            path: Path = path,
            start: threading.Barrier = start,
            created: dict[int, RunFolder | StoreError] = created,
        ) -> None:
            start.wait()
            try:
                created[who] = RunFolder.create_or_resume(
                    path, {"identity": {"seed": seed}}, [instance(seed)], [request(seed)]
                )
            except StoreError as error:
                created[who] = error

        threads = [
            threading.Thread(target=create, args=(who, seed))
            for who, seed in enumerate((1, other_seed))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        runs = [one for one in created.values() if isinstance(one, RunFolder)]
        assert len(runs) == (2 if other_seed == 1 else 1)
        seed = runs[0].manifest["identity"]["seed"]
        # The data are the winner's, whatever the loser did.
        assert runs[0].read_instances() == (instance(seed),)
        assert list(runs[0].iter_requests()) == [request(seed)]
        assert list(path.glob(".*")) == []


def test_a_creator_that_slept_through_everything_changes_nothing(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked before there was a manifest, and takes the intent after it is gone."""
    looks = iter([None])
    real = RunFolder.create_or_resume.__globals__["read_manifest"]
    monkeypatch.setattr(
        "rel_batch.store.run_folder.read_manifest", lambda path: next(looks, real(path))
    )
    with pytest.raises(StoreError, match="is of another run"):
        RunFolder.create_or_resume(run.path, {"identity": {"seed": 9}}, [], [])
    assert len(run.read_instances()) == 4
    assert list(run.path.glob(".*")) == []
