"""The table can be read at any width, and says nothing by colour alone."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from report_runs import mixed_run
from rich.console import Console

from rel_batch.report import Group, Mean, Summary, render_table, summarise


def rendered(summary: Summary, width: int, *, colour: bool = False) -> str:
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    console.print(render_table(summary, width=width))
    output = console.file
    assert isinstance(output, StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


def numbers(text: str) -> list[str]:
    table = text.split("95% Wilson")[0]
    return sorted(set(re.findall(r"\d+\.\d|\b\d+\b", table)))


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    return summarise(mixed_run(tmp_path / "small"))


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_table_of_a_small_run(
    summary: Summary, width: int, matches_golden: Callable[[str, str], bool]
) -> None:
    assert matches_golden(f"small_{width}.txt", rendered(summary, width))


@pytest.mark.parametrize("width", [50, 64, 80, 100, 120, 160, 200])
def test_no_figure_is_lost_or_cut_at_any_width(summary: Summary, width: int) -> None:
    large = [
        dataclasses.replace(
            group,
            planned=123_456,
            n=123_455,
            correct=123_455,
            upstream=123_455,
            truncated=12_345,
            unparsed=12_345,
            f1=Mean(23_456, 1.0),
            precision=Mean(23_456, 1.0),
            recall=Mean(23_456, 1.0),
            overlap=Mean(23_456, 0.25),
        )
        for group in summary.groups
    ]
    for shown in (summary, dataclasses.replace(summary, groups=tuple(large))):
        text = rendered(shown, width)
        assert "…" not in text
        assert all(len(line) <= width for line in text.splitlines())
        assert numbers(text) == numbers(rendered(shown, 300))


def test_without_colour_the_text_is_the_same(summary: Summary) -> None:
    coloured = rendered(summary, 80, colour=True)
    assert "\x1b[" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == rendered(summary, 80).splitlines()


def test_every_table_of_a_narrow_page_has_n(summary: Summary) -> None:
    headings = [line.split() for line in rendered(summary, 60).splitlines() if "subset" in line]
    assert len(headings) > 2
    assert all(line[:3] == ["task", "subset", "n"] for line in headings)


def test_columns_of_errors_and_missing_rows_are_there_only_where_there_are_any(
    summary: Summary,
) -> None:
    clean = Group("REL-A1", "3x3", "format", "accuracy", 4, 4, 4, 0, 0, 2)
    whole = dataclasses.replace(summary, groups=(clean,), totals=())
    assert "missing" not in rendered(whole, 200)
    assert "errors" not in rendered(whole, 200)
    assert "INCOMPLETE: 1 of 22 planned rows are missing." in rendered(summary, 200)
    assert "Errors (no reply): too_long 1." in rendered(summary, 200)


def test_several_samples_are_said_to_be_taken_together(summary: Summary) -> None:
    text = rendered(dataclasses.replace(summary, samples=4), 200)
    assert "up to 4 samples an instance" in text
    assert "bootstrap over instances" in text


def test_an_empty_run_says_so(summary: Summary) -> None:
    empty = dataclasses.replace(summary, groups=(), totals=())
    assert rendered(empty, 80) == "small: nothing was planned.\n"


def test_names_from_strangers_are_no_markup(summary: Summary) -> None:
    group = dataclasses.replace(summary.groups[0], subset="[red]x[/red]")
    text = rendered(dataclasses.replace(summary, groups=(group,), totals=()), 200)
    assert "[red]x[/red]" in text
