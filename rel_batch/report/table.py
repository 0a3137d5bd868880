"""The table of a run on a terminal, from 80 columns up.

    console.print(render_table(summarise(run), width=console.width))

Surprising: a narrow terminal gets shorter headings and a table of its own for precision, recall
and F1; the figures are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rel_batch.report.summary import Group, Mean, Rate, Summary

# Columns that the one-table layout needs, all of them present.
_WIDE = 140
_NONE = "–"


@dataclass(frozen=True, slots=True)
class _Column:
    """One column: its headings in a wide and a narrow table, and a group's cell."""

    wide: str
    narrow: str
    cell: Callable[[Group], Text]


def render_table(summary: Summary, *, width: int) -> RenderableType:
    """The table of a summary with its notes, for `width` columns. Pure."""
    wide = width >= _WIDE
    groups = [*summary.groups, *summary.totals]
    if not groups:
        return Text(f"{summary.run}: nothing was planned.")
    main = [*_names(), *_counts(groups), *_rates(groups)]
    sets = _set_columns(groups)
    blocks: list[RenderableType] = []
    for arm in summary.arms:
        rows = [group for group in summary.groups if group.arm == arm]
        totals = [group for group in summary.totals if group.arm == arm]
        title = f"{summary.run}, arm {arm}"
        if wide:
            blocks.append(_table(title, [*main, *sets], rows, totals, wide=True))
            continue
        blocks.append(_table(title, main, rows, totals, wide=False))
        with_sets = [group for group in rows if _set_n(group)]
        if with_sets:
            blocks.append(_table("", [*_names(), *sets], with_sets, [], wide=False))
    return Stack(*blocks, *_notes(summary, groups))


def _table(
    title: str,
    columns: Sequence[_Column],
    rows: Iterable[Group],
    totals: Sequence[Group],
    *,
    wide: bool,
) -> Table:
    table = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=None,
        padding=(0, 2 if wide else 1, 0, 0),
        pad_edge=False,
        header_style="bold",
    )
    for index, column in enumerate(columns):
        table.add_column(
            column.wide if wide else column.narrow,
            justify="left" if index < len(_names()) else "right",
            no_wrap=True,
        )
    for group in rows:
        table.add_row(*(column.cell(group) for column in columns))
    for group in totals:
        table.add_row(*(column.cell(group) for column in columns), style="italic")
    return table


def _names() -> list[_Column]:
    return [
        _Column("task", "task", lambda group: Text(group.name)),
        _Column("subset", "subset", lambda group: Text(group.subset or "total")),
    ]


def _counts(groups: Sequence[Group]) -> list[_Column]:
    columns = [
        _Column("n", "n", lambda group: Text(str(group.n))),
        _Column("answered", "answ.", lambda group: Text(str(group.answered))),
        _Column("truncated", "trunc.", lambda group: _alarm(group.truncated, "yellow")),
        _Column("unparsed", "unp.", lambda group: _alarm(group.unparsed, "yellow")),
    ]
    if any(group.errors for group in groups):
        columns.append(_Column("errors", "err.", lambda group: _alarm(group.errors, "red")))
    if any(group.missing for group in groups):
        columns.append(_Column("missing", "miss.", lambda group: _alarm(group.missing, "red")))
    return columns


def _rates(groups: Sequence[Group]) -> list[_Column]:
    heading = {
        "accuracy": "accuracy",
        "exact_match": "exact match",
        "correct": "correct",
    }
    kinds = [heading[kind] for kind in heading if any(g.headline == kind for g in groups)]
    kinds = kinds if len(kinds) == 1 else [k for k in kinds if k != "correct"]
    wide = " | ".join(kinds)
    narrow = wide if len(kinds) == 1 else "acc. | EM"
    columns = [
        _Column(f"{wide} %", f"{narrow} %", lambda group: _with_interval(group.headline_rate)),
    ]
    if any(group.completion_rate for group in groups):
        columns.append(_Column("completed %", "done", lambda g: _percent(g.completion_rate)))
    if any(group.upstream_rate for group in groups):
        columns.append(_Column("upstream %", "upst.", lambda g: _percent(g.upstream_rate)))
    return columns


def _set_columns(groups: Sequence[Group]) -> list[_Column]:
    columns: list[_Column] = []
    if any(group.f1 for group in groups):
        columns += [
            _Column("set n", "set n", lambda group: Text(str(_set_n(group) or _NONE))),
            _Column("precision %", "precision %", lambda group: _mean(group.precision)),
            _Column("recall %", "recall %", lambda group: _mean(group.recall)),
            _Column("F1 %", "F1 %", lambda group: _mean(group.f1)),
        ]
    if any(group.overlap for group in groups):
        columns.append(_Column("overlap %", "overlap %", lambda group: _mean(group.overlap)))
    return columns


def _set_n(group: Group) -> int:
    figure = group.f1 or group.overlap
    return figure.n if figure else 0


def _notes(summary: Summary, groups: Sequence[Group]) -> list[Text]:
    notes: list[Text] = [Text("")]
    if summary.missing:
        finished = f" ({summary.unscored} are there but not scored yet)" * bool(summary.unscored)
        notes.append(
            Text(
                f"INCOMPLETE: {summary.missing} of {summary.planned} planned rows are missing"
                f"{finished}.",
                style="bold red",
            )
        )
    statuses: dict[str, int] = {}
    for group in summary.groups:
        for status, count in group.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    if statuses:
        told = ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))
        notes.append(Text(f"errors (no reply): {told}.", style="red"))
    told = ["95% Wilson intervals in brackets; n counts rows, and only a correct one is a success"]
    if summary.samples > 1:
        told[0] += f" ({summary.samples} samples of each instance, taken as independent)"
    if any(group.completion_rate for group in groups):
        told.append("done/completed: task completion rate, correct of all that was planned")
    if any(group.upstream_rate for group in groups):
        told.append("upstream: correct of n by the reference evaluator's rules")
    if any(group.f1 for group in groups):
        told.append("precision, recall, F1: means over the rows whose gold is a set")
    if summary.totals:
        told.append("totals are over rows, not over tasks")
    notes.append(Text(". ".join(told) + ".", style="dim"))
    return notes


def _alarm(count: int, style: str) -> Text:
    return Text(str(count), style=style if count else "")


def _with_interval(rate: Rate) -> Text:
    if rate.estimate is None or rate.low is None or rate.high is None:
        return Text(_NONE)
    text = Text(f"{100 * rate.estimate:.1f}", style="bold")
    interval = f" [{100 * rate.low:.1f}–{100 * rate.high:.1f}]"
    return Text.assemble(text, (interval, "not bold"))


def _percent(rate: Rate | None) -> Text:
    if rate is None or rate.estimate is None:
        return Text(_NONE)
    return Text(f"{100 * rate.estimate:.1f}")


def _mean(figure: Mean | None) -> Text:
    return Text(_NONE if figure is None else f"{100 * figure.mean:.1f}")
