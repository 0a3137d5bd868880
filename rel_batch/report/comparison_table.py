"""The paired comparison on a terminal: `rel-batch compare`."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rel_batch.report.comparison import Comparison
from rel_batch.report.tables import show

_TESTS = {"McNemar": "McNemar's exact test", "bootstrap": "paired bootstrap over instances"}
_HEADINGS = ("points [95%]", "n", "p", "Holm", "gained", "lost", "detect.", "left out")


def render_comparisons(comparisons: Sequence[Comparison], labels: Sequence[str]) -> RenderableType:
    """Paired comparisons, a table for each pair of arms. Pure."""
    blocks: list[RenderableType] = []
    for pair in dict.fromkeys((c.baseline, c.other) for c in comparisons):
        some = [c for c in comparisons if (c.baseline, c.other) == pair]
        title = f"{labels[pair[1]]} against {labels[pair[0]]}"
        blocks += [Text(title, style="bold"), _table(some), Text("")]
    tests = sorted({c.paired.test for c in comparisons})
    told = [
        "Points: difference in percentage points on the n instances that both sides have; "
        "gained and lost count instances.",
        f"p: {' or '.join(_TESTS[test] for test in tests)}; Holm: corrected for all rows.",
        "Detect.: the smallest true difference found in four of five repetitions at this n.",
    ]
    if any(c.only_baseline or c.only_other for c in comparisons):
        told.append(
            "RESTRICTED: the two sides have different instances; what one side alone has is left "
            "out."
        )
    return Group(*blocks, Text("\n".join(told), style="dim"))


def _table(comparisons: Sequence[Comparison]) -> Table:
    # The box itself puts one space between two columns.
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0, header_style="bold"
    )
    table.add_column("task", no_wrap=True)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for c in comparisons:
        table.add_row(
            c.task,
            show(c.paired.difference, "change"),
            str(c.paired.difference.n),
            show(c.paired.p_value, "p"),
            show(c.p_holm, "p"),
            str(c.paired.gained),
            str(c.paired.lost),
            show(c.paired.detectable, "points"),
            str(c.only_baseline + c.only_other),
        )
    return table
