"""Small tables of a report as files: CSV for a spreadsheet, Parquet for a program.

write_table(Path("results"), ["task", "n"], [("REL-A1", 125)])   # results.csv, results.parquet
"""

# pyarrow has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rel_batch.store.disk import writing
from rel_batch.store.parquet import write_batches


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write `path`.csv and `path`.parquet; what they replace stays until they are whole.

    A column holds texts, whole numbers or numbers, and None where there is no value. Raises
    StoreError.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    with writing(path.with_name(path.name + ".csv"), replace=True) as file:
        file.write(text.getvalue().encode())
    values = [[row[place] for row in rows] for place in range(len(columns))]
    arrays = [pa.array(column, _kind(column)) for column in values]
    batch = pa.record_batch(arrays, names=list(columns))
    target = path.with_name(path.name + ".parquet")
    write_batches(target, batch.schema, [batch], dictionary=[], replace=True)


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or absent. Raises StoreError."""
    with writing(path, replace=True) as file:
        file.write(content)


def _kind(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    if all(isinstance(value, int) for value in known) and known:
        return pa.int64()
    return pa.string() if any(isinstance(value, str) for value in known) else pa.float64()
