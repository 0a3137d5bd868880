"""The files of a run as rows: one explicit, versioned Arrow schema for each kind of file.

    COMPLETIONS.batch(rows)   ->  pyarrow.RecordBatch
    COMPLETIONS.rows(batch)   ->  the same rows

Law: `rows(batch(rows)) == rows` for all values that the row types allow, Unicode included;
only a lone surrogate, which no UTF-8 file can hold, is refused (UnicodeEncodeError).

A file carries its kind and version ("completions/1") in its metadata, and one with another
version or other columns is an error, not a guess. Surprising: JSON values (gold, metadata,
predictions) are stored as JSON text with ASCII escapes, because their shape differs from task
to task and a reader in any language can parse a string.
"""

# pyarrow has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import functools
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from rel_batch.instances.audit import AuditRow
from rel_batch.records import Completion, Instance, PlannedRequest, Status, Verdict

METADATA_KEY = b"rel_batch.schema"

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """The score of one completion, with what a table groups it by: a row of a score part.

    Attributes:
        verdict, correct, parsed, failure, precision, recall, f1, overlap: the strict score's
            (records.Score). Where `status` has no reply the verdict is "unparsed" and `failure`
            is the status.
        prediction, upstream_prediction: JSON text of what was read from the reply, or None.
        upstream_correct: what the reference evaluator's rules say; None where there is no reply
            or where they were not asked.
        audited_correct: what comparing with audited gold says; None likewise.
    """

    request_key: str
    instance_key: str
    task: str
    subset: str
    arm: str
    sample: int
    rc: int
    status: Status
    verdict: Verdict
    correct: bool
    parsed: bool
    failure: str | None
    precision: float | None
    recall: float | None
    f1: float | None
    prediction: str | None
    overlap: float | None
    upstream_correct: bool | None
    upstream_prediction: str | None
    audited_correct: bool | None = None


@dataclass(frozen=True, slots=True)
class BaselineRow:
    """What a shortcut that needs no model scores on a run's instances of one task and subset.

    Attributes:
        baseline: the shortcut's name (instances.shortcuts).
        bears_on_rule: whether the shortcut is the task's rule itself or its opposite.
        correct, n: correct replies by the strict rules, and instances.
    """

    task: str
    subset: str
    baseline: str
    bears_on_rule: bool
    correct: int
    n: int


@dataclass(frozen=True, slots=True)
class _Codec:
    """How the values of one column become an Arrow array, and back."""

    encode: Callable[[list[Any], Any], Any]
    decode: Callable[[Any], list[Any]]


def _decode(array: Any) -> list[Any]:
    # Several times as fast as to_pylist(), which makes a scalar of each value first. Numpy has no
    # missing numbers.
    if array.null_count == len(array):
        return [None] * len(array)
    if array.null_count and not pa.types.is_string(array.type):
        return array.to_pylist()
    return array.to_numpy(zero_copy_only=False).tolist()


_PLAIN = _Codec(lambda values, kind: pa.array(values, kind), _decode)
_JSON = _Codec(
    lambda values, kind: pa.array(
        [None if value is None else json.dumps(value, default=dict) for value in values], kind
    ),
    lambda array: [None if text is None else json.loads(text) for text in _decode(array)],
)


def _encode_lists(values: list[Sequence[Any] | None], kind: Any) -> Any:
    # Through one flat array: ten times as fast as letting Arrow look at each list.
    filled = [() if value is None else value for value in values]
    lengths = np.fromiter(map(len, filled), np.int64, len(filled))
    offsets = np.zeros(len(filled) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    numbers = kind.value_type.to_pandas_dtype()
    flat = np.fromiter(itertools.chain.from_iterable(filled), numbers, int(offsets[-1]))
    absent = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat), type=kind, mask=absent)


def _decode_lists(array: Any) -> list[tuple[Any, ...] | None]:
    if array.null_count == len(array):
        return [None] * len(array)
    if array.null_count:
        return [None if value is None else tuple(value) for value in array.to_pylist()]
    offsets = array.offsets.to_numpy().tolist()
    start = offsets[0]
    flat = tuple(array.flatten().to_numpy().tolist())
    return [flat[a - start : b - start] for a, b in itertools.pairwise(offsets)]


_LISTS = _Codec(_encode_lists, _decode_lists)
_NAMES = _Codec(_PLAIN.encode, lambda array: [tuple(names) for names in array.to_pylist()])
_STRING, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_INT_LIST, _FLOAT_LIST = pa.list_(pa.int32()), pa.list_(pa.float64())


@dataclass(frozen=True)
class FileKind(Generic[Row]):
    """One kind of Parquet file: its rows, columns and version.

    `batch_rows` bounds how many rows are in memory (and in a row group) at once.
    """

    name: str
    version: int
    row: type[Row]  # a dataclass with slots, whose __init__ only fills them
    columns: tuple[tuple[str, Any, bool], ...]
    batch_rows: int
    # Columns with few distinct values, or values that come in runs.
    dictionary: tuple[str, ...] = ()
    codecs: Mapping[str, _Codec] = field(default_factory=dict[str, _Codec])

    def __post_init__(self) -> None:
        codecs = {_INT_LIST: _LISTS, _FLOAT_LIST: _LISTS}
        by_kind = {name: codecs[kind] for name, kind, _ in self.columns if kind in codecs}
        object.__setattr__(self, "codecs", {**by_kind, **self.codecs})

    @property
    def label(self) -> str:
        return f"{self.name}/{self.version}"

    @functools.cached_property
    def schema(self) -> Any:
        fields = [pa.field(name, kind, nullable) for name, kind, nullable in self.columns]
        return pa.schema(fields, metadata={METADATA_KEY: self.label.encode()})

    @functools.cached_property
    def column_names(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.columns)

    def batch(self, rows: Sequence[Row]) -> Any:
        """The rows as a RecordBatch. Raises UnicodeEncodeError for a lone surrogate."""
        arrays = [
            self.codecs.get(name, _PLAIN).encode(list(map(attrgetter(name), rows)), kind)
            for name, kind, _ in self.columns
        ]
        return pa.record_batch(arrays, schema=self.schema)

    def values(self, batch: Any, name: str) -> list[Any]:
        """One column of a batch, as Python values."""
        return self.codecs.get(name, _PLAIN).decode(batch.column(name))

    def rows(self, batch: Any) -> list[Row]:
        """The rows of a batch. A nullable column that was not read is None in each row."""
        read = set(batch.schema.names)
        columns: list[Iterable[Any]] = [
            self.values(batch, name) if name in read else itertools.repeat(_ABSENT.get(name))
            for name in self.column_names
        ]
        num_rows: int = batch.num_rows
        if not read:
            return []
        # Column by column into the slots: ten times as fast as a frozen dataclass's own __init__.
        rows = list(map(object.__new__, itertools.repeat(self.row, num_rows)))
        for name, values in zip(self.column_names, columns, strict=True):
            deque(map(getattr(self.row, name).__set__, rows, values), maxlen=0)
        return rows


# What stands for a column that the reader asked to leave out.
_ABSENT: dict[str, Any] = {"output_token_ids": (), "thought": ""}

INSTANCES = FileKind(
    "instances",
    1,
    Instance,
    (
        ("key", _STRING, False),
        ("id", _STRING, False),
        ("task", _STRING, False),
        ("subset", _STRING, False),
        ("question", _STRING, False),
        ("answer", _STRING, False),
        ("metadata", _STRING, False),
        ("rc", _INT, False),
        ("num_entities", _INT, False),
        ("source_file", _STRING, False),
    ),
    # A REL-B1 question of 49 sequences of 1,000 bases is 50 kB.
    batch_rows=512,
    dictionary=("task", "subset", "source_file", "rc", "num_entities"),
    codecs={"answer": _JSON, "metadata": _JSON},
)

REQUESTS = FileKind(
    "requests",
    1,
    PlannedRequest,
    (
        ("key", _STRING, False),
        ("instance_key", _STRING, False),
        ("task", _STRING, False),
        ("arm", _STRING, False),
        ("sample", _INT, False),
        ("seed", _INT, True),
        ("chunk", _INT, False),
        ("num_prompt_tokens", _INT, False),
        ("max_tokens", _INT, False),
        ("constraint_kind", _STRING, False),
        ("constraint_digest", _STRING, False),
        ("num_reserved_tokens", _INT, False),
    ),
    batch_rows=32_768,
    dictionary=(
        "instance_key",
        "task",
        "arm",
        "sample",
        "chunk",
        "num_prompt_tokens",
        "max_tokens",
        "constraint_kind",
        "constraint_digest",
        "num_reserved_tokens",
    ),
)

COMPLETIONS = FileKind(
    "completions",
    1,
    Completion,
    (
        ("request_key", _STRING, False),
        ("instance_key", _STRING, False),
        ("task", _STRING, False),
        ("arm", _STRING, False),
        ("sample", _INT, False),
        ("chunk", _INT, False),
        ("status", _STRING, False),
        ("reply", _STRING, False),
        ("output_token_ids", _INT_LIST, False),
        ("finish_reason", _STRING, True),
        ("num_prompt_tokens", _INT, False),
        ("num_output_tokens", _INT, False),
        ("num_cached_tokens", _INT, False),
        ("constraint_kind", _STRING, False),
        ("constraint_held", _BOOL, True),
        ("seed", _INT, True),
        ("error", _STRING, True),
        ("latency_s", _FLOAT, False),
        ("thought", _STRING, False),
        ("num_thought_tokens", _INT, False),
        ("token_logprobs", _FLOAT_LIST, True),
        ("token_ranks", _INT_LIST, True),
        ("overruled_share", _FLOAT, True),
        ("logprob_cost", _FLOAT, True),
        ("option_logprobs", _STRING, True),
        ("backend", _STRING, True),
        ("compile_s", _FLOAT, True),
        ("num_whitespace_tokens", _INT, False),
    ),
    batch_rows=4_096,
    dictionary=(
        "instance_key",
        "task",
        "arm",
        "sample",
        "chunk",
        "status",
        "finish_reason",
        "num_prompt_tokens",
        "num_output_tokens",
        "num_cached_tokens",
        "num_thought_tokens",
        "constraint_kind",
        "error",
        "backend",
        "compile_s",
        "num_whitespace_tokens",
    ),
    codecs={"option_logprobs": _JSON},
)

SCORES = FileKind(
    "scores",
    1,
    ScoreRow,
    (
        ("request_key", _STRING, False),
        ("instance_key", _STRING, False),
        ("task", _STRING, False),
        ("subset", _STRING, False),
        ("arm", _STRING, False),
        ("sample", _INT, False),
        ("rc", _INT, False),
        ("status", _STRING, False),
        ("verdict", _STRING, False),
        ("correct", _BOOL, False),
        ("parsed", _BOOL, False),
        ("failure", _STRING, True),
        ("precision", _FLOAT, True),
        ("recall", _FLOAT, True),
        ("f1", _FLOAT, True),
        ("prediction", _STRING, True),
        ("overlap", _FLOAT, True),
        ("upstream_correct", _BOOL, True),
        ("upstream_prediction", _STRING, True),
        ("audited_correct", _BOOL, True),
    ),
    batch_rows=16_384,
    dictionary=(
        "instance_key",
        "task",
        "subset",
        "arm",
        "sample",
        "rc",
        "status",
        "verdict",
        "failure",
        "prediction",
        "upstream_prediction",
    ),
)

AUDIT = FileKind(
    "audit",
    1,
    AuditRow,
    (
        ("file", _STRING, False),
        ("line", _INT, False),
        ("id", _STRING, False),
        ("task", _STRING, False),
        ("findings", pa.list_(_STRING), False),
        ("undecided", pa.list_(_STRING), False),
        ("detail", _STRING, False),
    ),
    batch_rows=16_384,
    dictionary=("file", "task"),
    codecs={"findings": _NAMES, "undecided": _NAMES, "detail": _JSON},
)

BASELINES = FileKind(
    "baselines",
    1,
    BaselineRow,
    (
        ("task", _STRING, False),
        ("subset", _STRING, False),
        ("baseline", _STRING, False),
        ("bears_on_rule", _BOOL, False),
        ("correct", _INT, False),
        ("n", _INT, False),
    ),
    batch_rows=16_384,
    dictionary=("task", "subset", "baseline"),
)
