"""The findings as Markdown: `report.md`, for a repository or a note."""

from __future__ import annotations

from collections.abc import Sequence

from rel_batch.report.figures import Figure
from rel_batch.report.findings import Findings
from rel_batch.report.html import arms_in_words, title
from rel_batch.report.reply_tables import (
    calibration_table,
    effects_table,
    failures_table,
    sets_table,
)
from rel_batch.report.sections import (
    answer_table,
    baselines_table,
    comparisons_table,
    results_table,
    trends_table,
)
from rel_batch.report.tables import Table


def render_markdown(findings: Findings, figures: Sequence[Figure]) -> str:
    """The report's tables and pictures; pictures are files in `figures/`. Pure."""
    parts = [f"# {_escaped(title(findings))}"]
    for run in findings.evidence.runs:
        commit = f" at {run.commit[:12]}" if run.commit else ""
        model = f": {run.model}{commit}" if run.model else ""
        parts.append(_escaped(f"{run.name}{model}, {run.planned:,} requests planned."))
    parts.append(_escaped(arms_in_words(findings)))
    parts += [f"> **Note.** {_escaped(warning)}" for warning in findings.warnings]
    parts.append(_table(answer_table(findings)) if findings.results else "No row is scored yet.")
    parts += [f"> **Note.** {_escaped(remark)}" for remark in findings.remarks]
    parts += [f"![{_escaped(f.alt)}](figures/{f.name}.svg)" for f in figures]
    rest = (
        comparisons_table(findings),
        trends_table(findings),
        effects_table(findings),
        calibration_table(findings),
        failures_table(findings),
        sets_table(findings),
        baselines_table(findings),
        results_table(findings),
    )
    parts += [_table(table) for table in rest if table.rows]
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    lines = [
        _line([column.heading for column in table.columns]),
        _line(["---" if column.kind == "text" else "---:" for column in table.columns]),
        *(_line([_escaped(cell) for cell in table.shown(row)]) for row in table.rows),
    ]
    note = f"\n\n{table.note}" if table.note else ""
    return f"## {table.title}\n\n" + "\n".join(lines) + note


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """A text without anything that Markdown or HTML would take for markup."""
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, "\\" + mark)
    return text.replace("&", "&amp;").replace("\n", " ")
