"""The table of a run on a terminal of any width.

    console.print(render_table(summarise(run), width=console.width))

Law: no figure is cut, and none is without its n. Columns that do not fit beside each other go
into a table below, with the names and n again. Nothing is told by colour alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rel_batch.constraints import ASSISTED_MARK
from rel_batch.report.summary import Group, Mean, Rate, Summary

_NONE = "-"
_HEADLINES = {"accuracy": "accuracy", "exact_match": "exact match", "correct": "correct"}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its heading in full and abbreviated, a group's cell, what needs explaining."""

    heading: str
    short: str
    cell: Callable[[Group], Text]
    meaning: str = ""

    def width(self, groups: Sequence[Group], *, full: bool) -> int:
        heading = self.heading if full else self.short
        return max(len(heading), *(self.cell(group).cell_len for group in groups))


_NAMES = (
    _Column("task", "task", lambda group: Text(group.name)),
    _Column("subset", "subset", lambda group: Text(group.subset or "total")),
    _Column("n", "n", lambda group: Text(str(group.n))),
)


def render_table(summary: Summary, *, width: int) -> RenderableType:
    """The table of a summary, with its notes, for `width` columns. Pure.

    Below about 50 columns there is no room for a figure beside its name.
    """
    groups = [*summary.groups, *summary.totals]
    if not groups:
        return Text(f"{summary.run}: nothing was planned.")
    kinds = (_counts(groups), _rates(groups), _set_figures(groups))
    columns = [column for kind in kinds for column in kind]
    full = _width(columns, groups, full=True) <= width
    pages = [columns] if full else _pages(kinds, groups, width)
    blocks: list[RenderableType] = []
    for arm in summary.arms:
        rows = [group for group in summary.groups if group.arm == arm]
        totals = [group for group in summary.totals if group.arm == arm]
        mark = ASSISTED_MARK if arm in summary.assisted else ""
        blocks.append(Text(f"{summary.run}, arm {arm}{mark}", style="bold"))
        for page in pages:
            blocks += [_table(page, rows, totals, full=full), Text("")]
    return Stack(*blocks, *_warnings(summary), _legend(summary, columns, full=full))


def _pages(
    kinds: Sequence[Sequence[_Column]], groups: Sequence[Group], width: int
) -> list[list[_Column]]:
    """The columns in few tables that fit; columns of a kind stay together where they can."""
    pages: list[list[_Column]] = [[]]
    for kind in kinds:
        fits_alone = _width(kind, groups, full=False) <= width
        for some in [kind] if fits_alone else [[column] for column in kind]:
            if pages[-1] and _width([*pages[-1], *some], groups, full=False) > width:
                pages.append([])
            pages[-1].extend(some)
    return pages


def _width(columns: Sequence[_Column], groups: Sequence[Group], *, full: bool) -> int:
    shown = [*_NAMES, *columns]
    return _gap(full) * (len(shown) - 1) + sum(c.width(groups, full=full) for c in shown)


def _gap(full: bool) -> int:
    return 2 if full else 1


def _table(
    columns: Sequence[_Column], rows: Sequence[Group], totals: Sequence[Group], *, full: bool
) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        # The box itself puts one space between two columns.
        padding=(0, _gap(full) - 1, 0, 0),
        header_style="bold",
    )
    for column in (*_NAMES, *columns):
        justify = "left" if column in _NAMES[:2] else "right"
        table.add_column(column.heading if full else column.short, justify=justify, no_wrap=True)
    for style, groups in (("", rows), ("italic", totals)):
        table.add_section()
        for group in groups:
            cells = [column.cell(group) for column in columns]
            # A row in which nothing exists says nothing.
            if any(cell.plain != _NONE for cell in cells):
                table.add_row(*(name.cell(group) for name in _NAMES), *cells, style=style)
    return table


def _counts(groups: Sequence[Group]) -> list[_Column]:
    columns = [
        _Column("answered", "answ.", lambda group: Text(str(group.answered))),
        _Column("truncated", "trunc.", lambda group: _count(group.truncated, "yellow")),
        _Column("unparsed", "unp.", lambda group: _count(group.unparsed, "yellow")),
    ]
    if any(group.errors for group in groups):
        columns.append(_Column("errors", "err.", lambda group: _count(group.errors, "red")))
    if any(group.missing for group in groups):
        columns.append(_Column("missing", "miss.", lambda group: _count(group.missing, "red")))
    return columns


def _rates(groups: Sequence[Group]) -> list[_Column]:
    found = {group.headline for group in groups}
    names = [name for key, name in _HEADLINES.items() if key in found]
    heading = " | ".join(names)
    short = heading if len(names) == 1 else "acc. | EM"
    columns = [
        _Column(f"{heading} %", f"{short} %", lambda group: _with_interval(group.headline_rate))
    ]
    if any(group.completion_rate for group in groups):
        meaning = "task completion rate, of all that was planned"
        columns.append(
            _Column("completed %", "done", lambda g: _percent(g.completion_rate), meaning)
        )
    if any(group.upstream_rate for group in groups):
        meaning = "correct by the reference evaluator's rules, of n"
        columns.append(_Column("upstream %", "upst.", lambda g: _percent(g.upstream_rate), meaning))
    if any(group.audited_rate for group in groups):
        meaning = "correct by gold without its known faults, of n"
        columns.append(_Column("audited %", "aud.", lambda g: _percent(g.audited_rate), meaning))
        meaning = "rows on which the strict and the audited verdict disagree"
        columns.append(_Column("differ", "diff.", lambda g: Text(str(g.audited_differs)), meaning))
    return columns


def _set_figures(groups: Sequence[Group]) -> list[_Column]:
    columns: list[_Column] = []
    if any(group.f1 for group in groups):
        meaning = "rows whose gold is a set; precision, recall and F1 are means over them"
        columns += [
            _Column("set n", "set n", lambda group: _n(group.f1), meaning),
            _Column("precision %", "prec.", lambda group: _mean(group.precision)),
            _Column("recall %", "rec.", lambda group: _mean(group.recall)),
            _Column("F1 %", "F1", lambda group: _mean(group.f1)),
        ]
    if any(group.overlap for group in groups):
        meaning = "mean share of gold's atoms in the common substructure, over overlap n rows"
        columns += [
            _Column("overlap n", "overlap n", lambda group: _n(group.overlap)),
            _Column("overlap %", "overlap", lambda group: _mean(group.overlap), meaning),
        ]
    return columns


def _warnings(summary: Summary) -> list[Text]:
    warnings: list[Text] = []
    if summary.missing:
        unscored = f"; {summary.unscored} of them wait to be scored" if summary.unscored else ""
        warnings.append(
            Text(
                f"INCOMPLETE: {summary.missing} of {summary.planned} planned rows are missing"
                f"{unscored}.",
                style="bold red",
            )
        )
    statuses: Counter[str] = Counter()
    for group in summary.groups:
        statuses.update(group.statuses)
    if statuses:
        told = ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))
        warnings.append(Text(f"Errors (no reply): {told}.", style="red"))
    return warnings


def _legend(summary: Summary, columns: Sequence[_Column], *, full: bool) -> Text:
    told = ["95% Wilson intervals in brackets. All rows count: only a correct one is a success."]
    if summary.samples > 1:
        told[0] = (
            f"n counts rows, of up to {summary.samples} samples an instance. 95% intervals in "
            "brackets: bootstrap over instances, Wilson's where each has one sample or all agree. "
            "All rows count: only a correct one is a success."
        )
    told += [
        f"{column.heading if full else column.short}: {column.meaning}."
        for column in columns
        if column.meaning
    ]
    if summary.assisted:
        told.append("Assisted: given a part of the answer. Never a headline score, in no total.")
    if summary.totals:
        told.append("Totals are over rows, not over tasks.")
    if not full:
        names = [(c.short, c.heading.removesuffix(" %")) for c in columns if c.short[-1] == "."]
        if any(c.short == "acc. | EM %" for c in columns):
            names += [("acc.", "accuracy"), ("EM", "exact match")]
        told.append("Short: " + ", ".join(itertools.starmap("{} {}".format, names)) + ".")
    return Text("\n".join(told), style="dim")


def _count(count: int, style: str) -> Text:
    return Text(str(count), style=style if count else "")


def _with_interval(rate: Rate) -> Text:
    if rate.estimate is None or rate.low is None or rate.high is None:
        return Text(_NONE)
    interval = f" [{100 * rate.low:.1f}, {100 * rate.high:.1f}]"
    return Text.assemble((f"{100 * rate.estimate:.1f}", "bold"), interval)


def _percent(rate: Rate | None) -> Text:
    estimate = None if rate is None else rate.estimate
    return Text(_NONE if estimate is None else f"{100 * estimate:.1f}")


def _mean(figure: Mean | None) -> Text:
    return Text(_NONE if figure is None else f"{100 * figure.mean:.1f}")


def _n(figure: Mean | None) -> Text:
    return Text(_NONE if figure is None else str(figure.n))
