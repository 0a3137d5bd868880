"""Which files hold the completions of a run, and which row of a request counts.

    chunk-00012.part-00.parquet   what a worker has published: rows of one chunk
    arm-format.part-00.parquet    what a compaction has merged: rows of one arm, by chunk

Both kinds have the same columns, and a request may have a row in several files: a slow worker
publishes a chunk that another took over, a compaction is killed before it has removed what it
merged. Readers therefore go chunk by chunk through all files at once and take the first row of
each key: merged files first, by number, then the parts, by number. A compaction copies the row
that counts, so a row that was read once is never replaced by another.

Law: whatever is published, merged, removed or killed meanwhile, a reader gives each request that
had a row when it began exactly once. A file that is gone has had all its rows copied into
another before, so the reader looks again and goes on where it was.

Surprising: no name is ever given twice, or a reader could take a new part for the one that it
has listed. Parts are numbered from 0 until a chunk may have lost some to a compaction; from then
on their number is the time in milliseconds.
"""

from __future__ import annotations

import heapq
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from rel_batch.errors import StoreError
from rel_batch.store.disk import FileGoneError, file_names

_PART = re.compile(r"chunk-(\d{5,9})\.part-(\d{2,18})\.parquet", re.ASCII)
_MERGED = re.compile(r"arm-(.{1,80})\.part-(\d{2,9})\.parquet", re.ASCII)

_Row = TypeVar("_Row")
# Some rows of one chunk, in the order of their file, with their keys.
Rows = tuple[int, list[str], list[_Row]]


@dataclass(frozen=True)
class Parts:
    """The files of completions at one moment, by name: there may be ten thousand of them.

    Attributes:
        merged_names: the files of compactions, by number and name.
        by_chunk: what workers have published, by chunk and number.
    """

    folder: Path
    merged_names: tuple[str, ...]
    by_chunk: Mapping[int, tuple[str, ...]]

    @property
    def merged(self) -> tuple[Path, ...]:
        """The files of compactions."""
        return tuple(self.folder / name for name in self.merged_names)

    @property
    def published(self) -> Iterator[Path]:
        """The parts of workers, in their order."""
        return (self.folder / name for names in self.by_chunk.values() for name in names)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files, in the order in which their rows count."""
        return (*self.merged, *self.published)

    def of_chunk(self, chunk: int) -> tuple[Path, ...]:
        """The files that may hold rows of a chunk."""
        names = (*self.merged_names, *self.by_chunk.get(chunk, ()))
        return tuple(self.folder / name for name in names)


def list_parts(folder: Path) -> Parts:
    """The files of completions. Raises StoreError where the run folder is not there."""
    merged: list[tuple[int, str]] = []
    parts: list[tuple[int, int, str]] = []
    for name in _names(folder, ("chunk-", "arm-")):
        if found := _PART.fullmatch(name):
            parts.append((int(found[1]), int(found[2]), name))
        elif (number := merged_number(name)) is not None:
            merged.append((number, name))
    return Parts(
        folder,
        tuple(name for _, name in sorted(merged)),
        {
            chunk: tuple(name for _, _, name in group)
            for chunk, group in itertools.groupby(sorted(parts), key=itemgetter(0))
        },
    )


def next_part_number(folder: Path, chunk: int) -> int:
    """A number that no part of this chunk ever had. Raises StoreError."""
    names = _names(folder, (f"chunk-{chunk:05d}.", "arm-"))
    numbers = [number for name in names if (number := part_number(name)) is not None]
    last = max(numbers, default=-1)
    if any(merged_number(name) is not None for name in names):
        return max(last + 1, time.time_ns() // 1_000_000)
    return last + 1


def _names(folder: Path, beginnings: tuple[str, ...]) -> set[str]:
    """The names in a folder that begin so."""
    # A list is not made in one moment: it may miss a merged file because it was begun too early
    # and the parts in it because it ended too late. Of two lists the second misses neither,
    # unless something vanished between them.
    names = {name for name in file_names(folder) if name.startswith(beginnings)}
    while True:
        again = {name for name in file_names(folder) if name.startswith(beginnings)}
        if names <= again:
            return again
        names = again


def part_name(chunk: int, number: int) -> str:
    return f"chunk-{chunk:05d}.part-{number:02d}.parquet"


def merged_name(arm: str, number: int) -> str:
    return f"arm-{arm}.part-{number:02d}.parquet"


def chunk_of(name: str) -> int | None:
    """The chunk of a part's name; None for any other name."""
    found = _PART.fullmatch(name)
    return None if found is None else int(found[1])


def part_number(name: str) -> int | None:
    """The number in a part's name; None for any other name."""
    found = _PART.fullmatch(name)
    return None if found is None else int(found[2])


def merged_number(name: str) -> int | None:
    """The number in a merged file's name; None for any other name."""
    found = _MERGED.fullmatch(name)
    return None if found is None else int(found[2])


def first_of_each_key(
    list_files: Callable[[], Parts], read: Callable[[Path], Iterable[Rows[_Row]]]
) -> Iterator[_Row]:
    """The row that counts of each key, chunk by chunk; one batch of each merged file in memory.

    `read` gives the rows of one file in the order of their chunks. Raises StoreError.
    """
    chunk = -1
    seen = set[str]()
    parts = list_files()
    while True:
        try:
            for number, keys, rows in _by_chunk(parts, read):
                if number > chunk:
                    chunk = number
                    seen = set[str]()
                elif number < chunk:  # given before a file was found to be gone
                    continue
                for key, row in zip(keys, rows, strict=True):
                    if key not in seen:
                        seen.add(key)
                        yield row
            return
        except FileGoneError as error:
            parts = listed_again(parts, list_files, error)


def listed_again(parts: Parts, list_files: Callable[[], Parts], error: FileGoneError) -> Parts:
    """The files as they are now that one is gone. Raises `error` where none of them is."""
    now = list_files()
    if now == parts:
        raise error
    return now


def _by_chunk(parts: Parts, read: Callable[[Path], Iterable[Rows[_Row]]]) -> Iterator[Rows[_Row]]:
    merged = [_ordered(path, read(path)) for path in parts.merged]
    published = itertools.chain.from_iterable(map(read, parts.published))
    # Of equal chunks, that of the file that is named first comes first.
    return heapq.merge(*merged, published, key=itemgetter(0))


def _ordered(path: Path, rows: Iterable[Rows[_Row]]) -> Iterator[Rows[_Row]]:
    last = -1
    for found in rows:
        if found[0] < last:
            raise StoreError(
                f"{path} holds rows of chunk {found[0]} after those of chunk {last}",
                hint="It was not written by rel-batch compact; move it out of the run folder.",
            )
        last = found[0]
        yield found
