"""What is given a part of the answer is marked wherever it is shown, and is no headline score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from test_findings import row, scored_run

from rel_batch.report import summarise
from rel_batch.report.comparison import arm_pairs
from rel_batch.report.evidence import read_evidence
from rel_batch.report.findings import Findings, find
from rel_batch.report.html import arms_in_words
from rel_batch.report.publish import publish_report
from rel_batch.report.sections import all_tables, answer_table
from rel_batch.report.summary import to_json
from rel_batch.report.table import render_table
from rel_batch.store import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """An arm that is always wrong, and an assisted one that is always right."""
    arms = (("format", False), ("formula", True))
    rows = [row(n, correct=correct, arm=arm) for n in range(4) for arm, correct in arms]
    return scored_run(tmp_path / "run", rows)


@pytest.fixture
def findings(run: RunFolder) -> Findings:
    return find(read_evidence([run]))


def test_it_has_no_place_among_the_results_and_the_leaderboard(
    findings: Findings, run: RunFolder
) -> None:
    other = find(read_evidence([run, run]))
    for found in (findings, other):
        table = answer_table(found)
        arms = [str(cells[0]) for cells in table.rows]
        assert arms
        assert not any("formula" in arm for arm in arms)
        assert "formula (assisted)" in table.note
    assert [one.n for one in findings.overall.values()] == [4, 0]


def test_every_other_table_and_figure_marks_it(findings: Findings) -> None:
    shown = 0
    for table in all_tables(findings):
        texts = [column.heading for column in table.columns]
        texts += [str(cell) for cells in table.rows for cell in cells if isinstance(cell, str)]
        for text in texts:
            if "formula" in text:
                assert "(assisted)" in text
                shown += 1
    assert shown
    assert "formula (assisted)" in arms_in_words(findings)


def test_the_written_report_never_names_it_without_the_mark(
    findings: Findings, tmp_path: Path
) -> None:
    publish_report(findings, tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "formula (assisted)" in text
    told = text.replace("formula (assisted)", "").replace("constraint formula", "")
    assert "formula" not in told


def test_the_terminal_and_the_json_mark_it_and_give_it_no_total(run: RunFolder) -> None:
    summary = summarise(run)
    console = Console(width=200, record=True)
    console.print(render_table(summary, width=200))
    text = console.export_text()
    assert "arm formula (assisted)" in text
    assert "Never a headline score" in text
    assert "arm format (assisted)" not in text
    value = json.loads(to_json(summary))
    assert value["assisted_arms"] == ["formula"]
    assert not any(total["arm"] == "formula" for total in value["totals"])


@pytest.mark.parametrize("name", ["formula", "formula (assisted)"])
def test_a_comparison_may_name_it_with_or_without_the_mark(run: RunFolder, name: str) -> None:
    assert arm_pairs(read_evidence([run]), name) == [(1, 0)]
