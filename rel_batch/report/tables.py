"""What a table of a report is: one value for the page, for Markdown, for CSV and for Parquet.

    table = results_table(findings)    # sections.py
    table.flat()        # ["task", ..., "score", "score_low", "score_high", "score_n"], rows
    table.shown(row)    # ["REL-A1", ..., "24.8 [18.1, 33.0]"]

Law: no share is shown without its n. A share is a fraction in the files and a percentage on paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode

from rel_batch.report.statistics import Estimate

Kind = Literal[
    "text", "count", "number", "percent", "points", "estimate", "change", "slope", "p", "fraction"
]
_WITH_INTERVAL = frozenset({"estimate", "change", "slope"})
NONE = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in files, its heading for people, and what its values are."""

    name: str
    heading: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True)
class Linked:
    """A count, and the filter of the browser that shows what was counted."""

    count: int
    link: str


@dataclass(frozen=True)
class Table:
    """A table of values; `name` is its file's, `title` and `note` are for people."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    def flat(self) -> tuple[list[str], list[list[Any]]]:
        """Column names and rows of plain values: an estimate becomes four columns."""
        names: list[str] = []
        for column in self.columns:
            names.append(column.name)
            if column.kind in _WITH_INTERVAL:
                names += [f"{column.name}_{part}" for part in ("low", "high", "n")]
        return names, [self._flat_row(row) for row in self.rows]

    def shown(self, row: Sequence[Any]) -> list[str]:
        """The cells of a row, for people."""
        return [show(value, column.kind) for column, value in zip(self.columns, row, strict=True)]

    def _flat_row(self, row: Sequence[Any]) -> list[Any]:
        values: list[Any] = []
        for column, value in zip(self.columns, row, strict=True):
            if column.kind in _WITH_INTERVAL:
                found: Estimate | None = value
                values += (
                    [None] * 4 if found is None else [found.value, found.low, found.high, found.n]
                )
            else:
                values.append(value.count if isinstance(value, Linked) else value)
        return values


def show(value: Any, kind: Kind) -> str:
    """A value as a person reads it.

    >>> show(Estimate(0.248, 0.181, 0.33, 125), "estimate")
    '24.8 [18.1, 33.0]'
    """
    if isinstance(value, Linked):
        value = value.count
    if value is None or (isinstance(value, Estimate) and value.value is None):
        return NONE
    if isinstance(value, Estimate):
        scale, form = (1.0, "{:+.3f}") if kind == "slope" else (100.0, _FORMS[kind])
        parts = [value.value, value.low, value.high]
        middle, low, high = (NONE if p is None else form.format(scale * p) for p in parts)
        return f"{middle} [{low}, {high}]"
    if kind == "p":
        return "<0.001" if value < 0.001 else f"{value:.3f}"
    if kind == "percent":
        return f"{100 * value:.1f}"
    if kind == "points":
        return f"{100 * value:.1f}"
    if kind == "fraction":
        return f"{value:.3f}"
    if kind == "count":
        return f"{value:,}"
    return f"{value:,.2f}" if kind == "number" else str(value)


_FORMS = {"estimate": "{:.1f}", "change": "{:+.1f}"}


def linked(count: int, **filters: str) -> Linked | int:
    """A count with the address of the rows in the page's browser; none lead to nothing."""
    return Linked(count, "#" + urlencode(filters)) if count else count
