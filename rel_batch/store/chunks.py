"""What the chunks of a run hold, without holding what is in them.

    index = read_chunk_index(run)
    index.sizes[12]        # ChunkSize(num_requests=24, cost=31_000)

A run may have a million requests; a worker keeps two numbers for each of some thousand chunks.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rel_batch.plan import expected_cost
from rel_batch.store.disk import FileGoneError
from rel_batch.store.parquet import read_columns
from rel_batch.store.parts import Rows, first_of_each_key
from rel_batch.store.run_folder import RunFolder
from rel_batch.store.schemas import COMPLETIONS

_KEY = ("request_key",)
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
    last_instance, prompts = "", set[int]()
    for chunk, instance, task, arm, prompt, most, reserved, kind in _rows(run):
        if instance != last_instance:
            last_instance = instance
            prompts.clear()
        size = sizes.get(chunk)
        if size is None:
            size = sizes[chunk] = ChunkSize()
        size.num_requests += 1
        size.cost += expected_cost(0 if prompt in prompts else prompt, most, reserved)
        prompts.add(prompt)
        known = examples.get((kind, task))
        if known is None or most < known.max_tokens:
            examples[kind, task] = Example(kind, task, arm, instance, most)
    quickest = sorted(examples.values(), key=lambda example: (example.max_tokens, example.task))
    return ChunkIndex(dict(sorted(sizes.items())), tuple(quickest))


def count_finished(run: RunFolder) -> Counter[int]:
    """How many requests of each chunk have a row, in bounded memory. Raises StoreError."""
    return Counter(first_of_each_key(run.list_parts, _read_keys))


def count_finished_of(chunk: int, files: Iterable[Path]) -> int:
    """The same for one chunk, from files that were listed before; 0 if one of them is gone."""
    keys: set[str] = set()
    try:
        for file in files:
            keys.update(*(k for (k,) in read_columns(file, COMPLETIONS, _KEY, chunk=chunk)))
    except FileGoneError:
        return 0
    return len(keys)


def _read_keys(file: Path) -> Iterator[Rows[int]]:
    for chunks, keys in read_columns(file, COMPLETIONS, ["chunk", *_KEY]):
        start = 0
        for chunk, group in itertools.groupby(chunks):
            end = start + sum(1 for _ in group)
            yield chunk, keys[start:end], [chunk] * (end - start)
            start = end


def _rows(run: RunFolder) -> Iterator[tuple[Any, ...]]:
    for columns in run.read_request_columns(*_COLUMNS):
        yield from zip(*columns, strict=True)
