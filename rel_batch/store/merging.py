"""The rows of many files as few files, one or more for each arm, with their scores beside them.

    new, num_rows = write_merged(run, mergeable_parts(run, run.list_parts(), versions), versions)

Rows go from file to file as Arrow tables, chunk by chunk, with the columns of their scores at
their side, so that what is sorted is sorted together. Memory is bounded by one chunk, one batch of
each merged file that is read, and what waits for a row group of each arm that is written.
"""

# pyarrow has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from rel_batch.errors import StoreError
from rel_batch.store.disk import FileGoneError, file_names
from rel_batch.store.parquet import (
    BatchFile,
    read_batches,
    read_notes,
    schema_with_notes,
    writing_batches,
)
from rel_batch.store.parts import Parts, chunk_of, first_of_each_key, merged_name, merged_number
from rel_batch.store.run_folder import RunFolder
from rel_batch.store.schemas import COMPLETIONS, SCORES, FileKind
from rel_batch.store.work import Work, added, parse_work, render_work

# What may wait in memory for all arms together, and what one row group may hold.
_WAITING_BYTES = 256 << 20
_GROUP_ROWS = 16_384
# A file that has grown so far is followed by another.
_FILE_BYTES = 1 << 30


@dataclass
class _Arm:
    """The files of one arm that are being written, and what waits to be written to the last."""

    files: list[tuple[Path, BatchFile, dict[str, BatchFile]]] = field(
        default_factory=list[tuple[Path, BatchFile, dict[str, BatchFile]]]
    )
    waiting: list[Any] = field(default_factory=list[Any])
    num_rows: int = 0
    num_bytes: int = 0


def mergeable_parts(run: RunFolder, parts: Parts, versions: Sequence[str]) -> Parts:
    """The parts without the chunks, and without the merged files, whose scores are incomplete."""

    def scored(name: str) -> bool:
        with contextlib.suppress(FileGoneError):
            return all(run.is_scored(version, parts.folder / name) for version in versions)
        return False

    by_chunk = {chunk: names for chunk, names in parts.by_chunk.items() if all(map(scored, names))}
    return Parts(parts.folder, tuple(filter(scored, parts.merged_names)), by_chunk)


def write_merged(run: RunFolder, parts: Parts, versions: Sequence[str]) -> tuple[list[Path], int]:
    """Publish the rows that count of all these files, and give the new files and the number."""
    extras = {version: _common_extras(run, version, parts.files) for version in versions}
    notes = {"compaction": secrets.token_hex(8), "work": render_work(_work_of(parts.files))}
    number = _next_number(run, versions)
    arms: dict[str, _Arm] = {}
    num_rows = 0
    with contextlib.ExitStack() as stack:

        def opened(arm: str) -> tuple[Path, BatchFile, dict[str, BatchFile]]:
            name = merged_name(arm, number + len(arms[arm].files))
            part_id = {"part_id": secrets.token_hex(8)}
            # Closed, and so published, in the reverse order: the scores are there when the
            # completions appear.
            path = parts.folder / name
            own = stack.enter_context(_writing(path, COMPLETIONS, {**notes, **part_id}))
            mirrors = {
                version: stack.enter_context(
                    _writing(
                        run.score_folder(version) / name,
                        SCORES,
                        {**part_id, "extras": ",".join(extras[version])},
                    )
                )
                for version in versions
            }
            return path, own, mirrors

        def flush(name: str) -> None:
            arm = arms[name]
            if not arm.files or arm.files[-1][1].num_bytes > _FILE_BYTES:
                arm.files.append(opened(name))
            table = pa.concat_tables(arm.waiting)
            _, completions, scores = arm.files[-1]
            completions.write(_columns_of(table, "", COMPLETIONS))
            for version, file in scores.items():
                file.write(_columns_of(table, f"{version}/", SCORES))
            arm.waiting, arm.num_rows, arm.num_bytes = [], 0, 0

        for table in _rows_that_count(run, parts, versions):
            for name, rows in _by_arm(table):
                arm = arms.setdefault(name, _Arm())
                arm.waiting.append(rows)
                arm.num_rows += rows.num_rows
                arm.num_bytes += rows.nbytes
                num_rows += rows.num_rows
                if arm.num_rows >= _GROUP_ROWS or arm.num_bytes > _WAITING_BYTES // len(arms):
                    flush(name)
        for name, arm in arms.items():
            if arm.waiting:
                flush(name)
    return [path for arm in arms.values() for path, _, _ in arm.files], num_rows


def _next_number(run: RunFolder, versions: Iterable[str]) -> int:
    """A number that no merged file has, nor the scores of one that was killed before it had it."""
    folders = [run.path / "completions", *map(run.score_folder, versions)]
    found = (merged_number(name) for folder in folders for name in file_names(folder))
    return max((number for number in found if number is not None), default=-1) + 1


def _writing(
    path: Path, kind: FileKind[Any], notes: Mapping[str, str]
) -> contextlib.AbstractContextManager[BatchFile]:
    schema = schema_with_notes(kind, notes)
    return writing_batches(path, schema, dictionary=kind.dictionary, replace=False)


def _columns_of(table: Any, prefix: str, kind: FileKind[Any]) -> Any:
    columns = [table.column(prefix + name) for name in kind.column_names]
    return pa.table(columns, schema=kind.schema)


def _rows_that_count(run: RunFolder, parts: Parts, versions: Sequence[str]) -> Iterator[Any]:
    """The row of each key with its scores, a table for each chunk, sorted."""

    # As every reader finds it, of places in tables in place of rows.
    def read(path: Path) -> Iterator[tuple[int, list[str], list[tuple[int, Any, int]]]]:
        for number, table in _tables(run, path, versions):
            names = table.column("request_key").to_pylist()
            yield number, names, [(number, table, place) for place in range(len(names))]

    listed = iter([parts])

    def list_files() -> Parts:
        # A file that is gone was merged by another compaction, which has published its rows.
        return next(listed, None) or mergeable_parts(run, run.list_parts(), versions)

    chunk = -1
    tables: list[tuple[Any, list[int]]] = []
    for number, table, place in first_of_each_key(list_files, read):
        if number != chunk and tables:
            yield _sorted(tables)
            tables = []
        chunk = number
        if tables and tables[-1][0] is table:
            tables[-1][1].append(place)
        else:
            tables.append((table, [place]))
    if tables:
        yield _sorted(tables)


def _sorted(picked: Sequence[tuple[Any, list[int]]]) -> Any:
    tables = [
        table if len(places) == table.num_rows else table.take(pa.array(places))
        for table, places in picked
    ]
    if len(tables) == 1 and tables[0].num_rows == 1:
        return tables[0]
    order = [(name, "ascending") for name in ("arm", "instance_key", "sample", "request_key")]
    return pa.concat_tables(tables).sort_by(order)


def _by_arm(table: Any) -> Iterator[tuple[str, Any]]:
    start = 0
    for arm, group in itertools.groupby(table.column("arm").to_pylist()):
        num_rows = sum(1 for _ in group)
        yield arm, table.slice(start, num_rows)
        start += num_rows


def _tables(run: RunFolder, path: Path, versions: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """The rows of a file with their scores beside them, cut where the chunk changes."""
    mirrors = {
        version: _Rows(
            read_batches(run.score_folder(version) / path.name, SCORES, SCORES.column_names)
        )
        for version in versions
    }
    for batch in read_batches(path, COMPLETIONS, COMPLETIONS.column_names):
        columns = dict(zip(COMPLETIONS.column_names, batch.columns, strict=True))
        keys = pa.chunked_array([columns["request_key"]])
        for version, rows in mirrors.items():
            scores = rows.take(batch.num_rows)
            if scores.column("request_key") != keys:
                raise run.misaligned(version, path)
            for name in SCORES.column_names:
                columns[f"{version}/{name}"] = scores.column(name)
        table = pa.table(columns)
        start = 0
        for chunk, group in itertools.groupby(table.column("chunk").to_pylist()):
            num_rows = sum(1 for _ in group)
            if chunk_of(path.name) not in (None, chunk):
                raise StoreError(
                    f"{path} holds a row of chunk {chunk}",
                    hint="A part was renamed or copied; give it back the name it had.",
                )
            yield chunk, table.slice(start, num_rows)
            start += num_rows


class _Rows:
    """Record batches as a sequence of rows of which any number can be taken."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._table: Any = None

    def take(self, num_rows: int) -> Any:
        """The next rows; fewer where there are no more."""
        while self._table is None or self._table.num_rows < num_rows:
            batch = next(self._batches, None)
            if batch is None:
                break
            more = pa.Table.from_batches([batch])
            self._table = more if self._table is None else pa.concat_tables([self._table, more])
        if self._table is None:
            return SCORES.schema.empty_table()
        taken, self._table = self._table.slice(0, num_rows), self._table.slice(num_rows)
        return taken


def _common_extras(run: RunFolder, version: str, files: Iterable[Path]) -> list[str]:
    """What the scores of all these files have beyond the strict verdict."""
    common: set[str] | None = None
    for path in files:
        notes = read_notes(run.score_folder(version) / path.name, SCORES)
        extras = set(notes.get("extras", "").split(","))
        common = extras if common is None else common & extras
    return sorted((common or set()) - {""})


def _work_of(files: Iterable[Path]) -> dict[str, Work]:
    total: dict[str, Work] = {}
    for path in files:
        total = added(total, parse_work(read_notes(path, COMPLETIONS).get("work")))
    return total
