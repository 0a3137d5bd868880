"""Everything about a run in one file: each completion with its score and its instance's words.

    export_run(run, Path("run.parquet"))   # or run.jsonl

One row for each finished request. A row that is not scored yet has null in the score's columns,
never a verdict.
"""

# pyarrow has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rel_batch.errors import ConfigError
from rel_batch.records import SCORING_VERSION
from rel_batch.store.disk import writing
from rel_batch.store.parquet import write_batches
from rel_batch.store.run_folder import RunFolder
from rel_batch.store.schemas import COMPLETIONS, SCORES

SUFFIXES = (".parquet", ".jsonl")

_BATCH_ROWS = 4_096
_INSTANCE_COLUMNS = (("id", pa.string()), ("subset", pa.string()), ("rc", pa.int64()))
_INSTANCE_NAMES = tuple(name for name, _ in _INSTANCE_COLUMNS)
_SCORE_NAMES = tuple(
    name
    for name in SCORES.column_names
    if name not in COMPLETIONS.column_names and name not in _INSTANCE_NAMES
)
_SCHEMA: Any = pa.schema(
    [
        *(pa.field(name, kind, nullable) for name, kind, nullable in COMPLETIONS.columns),
        *(pa.field(name, kind, False) for name, kind in _INSTANCE_COLUMNS),
        *(pa.field(name, kind) for name, kind, _ in SCORES.columns if name in _SCORE_NAMES),
    ]
)


def check_export_path(path: Path) -> None:
    """Raise ConfigError where the suffix of `path` is not a format that can be written."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            f"cannot export to {path}: its suffix says no known format",
            hint=f"Give it one of the suffixes {' or '.join(SUFFIXES)}.",
        )


def export_run(run: RunFolder, path: Path, version: str = SCORING_VERSION) -> int:
    """Write completions joined with the scores of `version`, and give the number of rows.

    The file at `path` is replaced once the new one is whole. Memory is bounded. Raises
    ConfigError for an unknown suffix and StoreError where a file cannot be read or written.
    """
    check_export_path(path)
    rows = _rows(run, version)
    if path.suffix == ".parquet":
        batches = (
            pa.RecordBatch.from_pylist(batch, schema=_SCHEMA)
            for batch in _batches(rows, _BATCH_ROWS)
        )
        dictionary = (*COMPLETIONS.dictionary, *_INSTANCE_NAMES, *SCORES.dictionary)
        known = [name for name in dict.fromkeys(dictionary) if name in _SCHEMA.names]
        return write_batches(path, _SCHEMA, batches, dictionary=known, replace=True)
    num_rows = 0
    with writing(path, replace=True) as file:
        for row in rows:
            file.write(json.dumps(row).encode() + b"\n")
            num_rows += 1
    return num_rows


def _rows(run: RunFolder, version: str) -> Iterator[dict[str, Any]]:
    instances = {key: rest for key, *rest in run.read_instance_columns("key", *_INSTANCE_NAMES)}
    for completion, score in run.iter_scored(version):
        row = {name: _plain(getattr(completion, name)) for name in COMPLETIONS.column_names}
        row |= zip(_INSTANCE_NAMES, instances[completion.instance_key], strict=True)
        row |= {name: score and getattr(score, name) for name in _SCORE_NAMES}
        yield row


def _plain(value: Any) -> Any:
    # As in the parts: a mapping, whose keys differ from row to row, is JSON text.
    return json.dumps(value, default=dict) if isinstance(value, Mapping) else value


def _batches(rows: Iterable[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    iterator = iter(rows)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
