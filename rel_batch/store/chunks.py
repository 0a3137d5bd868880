"""What the chunks of a run hold, without holding what is in them.

    index = read_chunk_index(run)
    index.sizes[12]        # ChunkSize(num_requests=24, cost=31_000)
    count_finished(run)    # Counter({12: 24, 13: 7})

A run may have a million requests; a worker keeps two numbers for each of some thousand chunks.
Surprising: no request becomes a Python object here. Columns are read as arrays and counted as
arrays, and of a chunk that one part holds alone only the footer is read, so that a million requests
are read, and what is missing of them is found, in seconds.
"""

# pyarrow has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rel_batch.plan import expected_cost
from rel_batch.store.disk import FileGoneError
from rel_batch.store.parquet import read_batches, read_num_rows
from rel_batch.store.parts import Parts, listed_again
from rel_batch.store.run_folder import RunFolder
from rel_batch.store.schemas import COMPLETIONS

_KEY = ("request_key",)
_OPEN_AT_ONCE = 8
_COLUMNS = (
    "chunk",
    "instance_key",
    "task",
    "arm",
    "num_prompt_tokens",
    "max_tokens",
    "num_reserved_tokens",
    "constraint_kind",
)


@dataclass(slots=True)
class ChunkSize:
    """How many requests a chunk has, and what they are expected to cost (plan.py)."""

    num_requests: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Example:
    """A request, for its constraint: the quickest of its task and kind."""

    kind: str
    task: str
    arm: str
    instance_key: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """All chunks of a run, in their order, and an example of each constraint."""

    sizes: Mapping[int, ChunkSize]
    examples: tuple[Example, ...]

    @property
    def num_requests(self) -> int:
        return sum(size.num_requests for size in self.sizes.values())


def read_chunk_index(run: RunFolder) -> ChunkIndex:
    """Read the index from the planned requests. Raises StoreError."""
    sizes: dict[int, ChunkSize] = {}
    examples: dict[tuple[str, str], Example] = {}
    for table in _whole_instances(run.iter_request_batches(_COLUMNS)):
        _add_sizes(table, sizes)
        _add_examples(table, examples)
    quickest = sorted(examples.values(), key=lambda example: (example.max_tokens, example.task))
    return ChunkIndex(dict(sorted(sizes.items())), tuple(quickest))


def count_finished(run: RunFolder) -> Counter[int]:
    """How many requests of each chunk have a row, in bounded memory. Raises StoreError."""
    finished: Counter[int] = Counter()
    parts = run.list_parts()
    while True:
        try:
            for chunk, num_rows in _count(parts, after=max(finished, default=-1)):
                finished[chunk] = num_rows
            return finished
        except FileGoneError as error:
            parts = listed_again(parts, run.list_parts, error)


def count_finished_of(chunk: int, files: Iterable[Path]) -> int:
    """The same for one chunk, from files that were listed before; 0 if one of them is gone."""
    try:
        return _num_distinct(keys for file in files for keys in _read_keys(file, chunk))
    except FileGoneError:
        return 0


# Sizes.


def _whole_instances(batches: Iterable[Any]) -> Iterator[Any]:
    """The rows of the batches, cut only between two instances."""
    rest: list[Any] = []
    for batch in batches:
        table = pa.Table.from_batches([*rest, batch])
        _, instances = _codes(table, "instance_key")
        others = np.flatnonzero(instances != instances[-1])
        start = int(others[-1]) + 1 if len(others) else 0
        yield table.slice(0, start)
        rest = table.slice(start).to_batches()
    if rest:
        yield pa.Table.from_batches(rest)


def _add_sizes(table: Any, sizes: dict[int, ChunkSize]) -> None:
    if not table.num_rows:
        return
    chunks, prompts = _numbers(table, "chunk"), _numbers(table, "num_prompt_tokens")
    _, instances = _codes(table, "instance_key")
    # Requests of one instance and chunk share a prompt where theirs are equally long.
    begins = (np.diff(chunks, prepend=-1) != 0) | (np.diff(instances, prepend=-1) != 0)
    _, first = np.unique((np.cumsum(begins) << 32) + prompts, return_index=True)
    new_prompts = np.zeros_like(prompts)
    new_prompts[first] = prompts[first]
    costs: Any = expected_cost(
        new_prompts,
        _numbers(table, "max_tokens"),
        _numbers(table, "num_reserved_tokens"),
    )
    numbers, places, counts = np.unique(chunks, return_inverse=True, return_counts=True)
    totals = np.bincount(places, weights=costs)
    for chunk, count, cost in zip(numbers.tolist(), counts.tolist(), totals.tolist(), strict=True):
        size = sizes.setdefault(chunk, ChunkSize())
        size.num_requests += count
        size.cost += int(cost)


def _add_examples(table: Any, examples: dict[tuple[str, str], Example]) -> None:
    kinds, kind = _codes(table, "constraint_kind")
    tasks, task = _codes(table, "task")
    bounds = _numbers(table, "max_tokens")
    pairs = kind * len(tasks) + task
    quickest_first = np.lexsort((bounds, pairs))
    _, places = np.unique(pairs[quickest_first], return_index=True)
    for row in quickest_first[places].tolist():
        found = kinds[kind[row]], tasks[task[row]]
        bound = int(bounds[row])
        if found not in examples or bound < examples[found].max_tokens:
            arm, instance = (table.column(name)[row].as_py() for name in ("arm", "instance_key"))
            examples[found] = Example(*found, arm, instance, bound)


def _numbers(table: Any, name: str) -> Any:
    return table.column(name).to_numpy()


def _codes(table: Any, name: str) -> tuple[list[str], Any]:
    """The distinct texts of a column, and for each row which of them it has."""
    encoded = table.column(name).combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


# Finished rows.


def _count(parts: Parts, *, after: int) -> Iterator[tuple[int, int]]:
    """Each chunk above `after` that has rows, in order, with their number."""
    if not parts.merged_names:
        chunks = [chunk for chunk in parts.by_chunk if chunk > after]
        # Opening ten thousand files one after another is a minute on a network file system.
        with ThreadPoolExecutor(_OPEN_AT_ONCE) as pool:
            yield from zip(chunks, pool.map(partial(_count_parts, parts), chunks), strict=True)
        return
    streams: list[Iterable[tuple[int, Iterable[Any]]]] = [
        _runs(file, after) for file in parts.merged
    ]
    streams.append(
        (chunk, (keys for name in names for keys in _read_keys(parts.folder / name)))
        for chunk, names in parts.by_chunk.items()
        if chunk > after
    )
    merged = heapq.merge(*streams, key=itemgetter(0))
    for chunk, group in itertools.groupby(merged, key=itemgetter(0)):
        yield chunk, _num_distinct(itertools.chain.from_iterable(keys for _, keys in group))


def _count_parts(parts: Parts, chunk: int) -> int:
    files = [parts.folder / name for name in parts.by_chunk[chunk]]
    if len(files) == 1:  # a worker gives each request of a part one row
        return read_num_rows(files[0], COMPLETIONS)
    return _num_distinct(keys for file in files for keys in _read_keys(file))


def _runs(merged: Path, after: int) -> Iterator[tuple[int, Iterable[Any]]]:
    """The keys of a merged file, chunk by chunk."""
    for batch in read_batches(merged, COMPLETIONS, ["chunk", *_KEY]):
        chunks, keys = batch.column("chunk").to_numpy(), batch.column(*_KEY)
        cuts = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(chunks)]
        for start, end in itertools.pairwise(cuts):
            if start < end and chunks[start] > after:
                yield int(chunks[start]), (keys.slice(start, end - start),)


def _read_keys(file: Path, chunk: int | None = None) -> Iterator[Any]:
    for batch in read_batches(file, COMPLETIONS, _KEY, chunk=chunk):
        yield batch.column(*_KEY)


def _num_distinct(arrays: Iterable[Any]) -> int:
    found = list(arrays)
    return len(pa.chunked_array(found).unique()) if found else 0
