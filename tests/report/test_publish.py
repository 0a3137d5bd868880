"""A report on disk: golden files of a fixed small run, and files that other programs read."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ablation_runs import HOSTILE, ablation_run
from example_runs import new_run

from rel_batch.report.browsing import pack
from rel_batch.report.evidence import read_evidence
from rel_batch.report.findings import find
from rel_batch.report.publish import publish_report

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    run = ablation_run(folder / "small")
    return publish_report(find(read_evidence([run])), folder / "report").parent


def test_the_markdown_report(report: Path, matches_golden: Callable[[str, str], bool]) -> None:
    assert matches_golden("report.md", (report / "report.md").read_text())


def test_the_page(report: Path, matches_golden: Callable[[str, str], bool]) -> None:
    # Its words and tables: without the packed rows, the pictures and the parts that are files.
    page = (report / "report.html").read_text()
    page = re.sub(r"(?s)<(style|script)([^>]*)>.*?</\1>", r"<\1\2>…</\1>", page)
    page = re.sub(r"data:image/[^\"]*", "data:…", page)
    page = re.sub(r"sha256-[\w+/=]+", "sha256-…", page)
    page = re.sub(r"rel-batch [\w.]+ from", "rel-batch … from", page)
    assert matches_golden("report.html", page)


def test_equal_runs_give_equal_reports(report: Path, tmp_path: Path) -> None:
    again = publish_report(
        find(read_evidence([ablation_run(tmp_path / "small")])), tmp_path / "report"
    ).parent
    names = sorted(str(file.relative_to(report)) for file in report.rglob("*") if file.is_file())
    assert names == sorted(str(f.relative_to(again)) for f in again.rglob("*") if f.is_file())
    for name in names:
        assert (report / name).read_bytes() == (again / name).read_bytes(), name


def test_tables_are_csv_and_parquet_of_the_same_rows(report: Path) -> None:
    tables = sorted(file.stem for file in (report / "tables").glob("*.csv"))
    assert tables == [
        "answer",
        "by_rc",
        "comparisons",
        "effects",
        "failures",
        "results",
        "sets",
        "trends",
    ]
    for name in tables:
        with (report / "tables" / f"{name}.csv").open(newline="") as file:
            header, *rows = list(csv.reader(file))
        table = pq.read_table(report / "tables" / f"{name}.parquet")
        assert table.column_names == header
        columns = zip(*(column.to_pylist() for column in table.columns), strict=True)
        assert [["" if v is None else str(v) for v in row] for row in columns] == rows


def test_pictures_are_svg_and_png(report: Path) -> None:
    for name in ("scores", "rc_curves"):
        assert (report / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert (report / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


class _Structure(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_points_to_nothing_outside_itself(report: Path) -> None:
    structure = _Structure()
    structure.feed((report / "report.html").read_text())
    for tag, attributes in structure.tags:
        for name in ("src", "srcset", "href", "action", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/svg+xml;base64,")), tag
        assert not any(name.startswith("on") or name == "style" for name in attributes)


def test_every_picture_has_a_text_and_every_table_headings(report: Path) -> None:
    structure = _Structure()
    structure.feed((report / "report.html").read_text())
    pictures = [attributes for tag, attributes in structure.tags if tag == "img"]
    assert len(pictures) == 2
    assert all(len(attributes["alt"] or "") > 50 for attributes in pictures)
    headings = [attributes["scope"] for tag, attributes in structure.tags if tag == "th"]
    assert set(headings) == {"col", "row"}


def test_no_reply_reaches_the_parser_of_html(report: Path) -> None:
    page = (report / "report.html").read_text()
    assert "window.hostile" not in page
    assert HOSTILE not in (report / "report.md").read_text()


def test_a_page_that_would_be_too_large_holds_instances_taken_evenly(tmp_path: Path) -> None:
    evidence = read_evidence([ablation_run(tmp_path / "run")])
    packed = pack(evidence, most_rows=20)
    assert (packed.shown, packed.total) == (10, 26)


def test_a_run_without_a_single_score_has_a_report_that_says_so(tmp_path: Path) -> None:
    findings = find(read_evidence([new_run(tmp_path / "run")]))
    page = publish_report(findings, tmp_path / "report").read_text()
    assert "Incomplete: 4 of 4 planned rows are missing." in page
    assert "No row is scored yet." in page
    assert "Every reply was correct" not in page


def rel_batch(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rel_batch", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_compare_prints_the_paired_comparison(
    tmp_path: Path, matches_golden: Callable[[str, str], bool]
) -> None:
    a, b = (ablation_run(tmp_path / name, skill=skill) for name, skill in (("a", 0.3), ("b", 0.7)))
    done = rel_batch("compare", a.path, b.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert matches_golden("compare_80.txt", done.stdout)


def test_report_writes_a_leaderboard_of_several_runs(tmp_path: Path) -> None:
    a, b = (ablation_run(tmp_path / name, skill=skill) for name, skill in (("a", 0.3), ("b", 0.9)))
    done = rel_batch("report", a.path, b.path, "-o", tmp_path / "board")
    assert (done.returncode, done.stderr) == (0, "")
    with (tmp_path / "board" / "tables" / "answer.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["arm"] == "b/format"
    assert [row["mean"] for row in rows] == sorted((row["mean"] for row in rows), reverse=True)
    assert {row["model"] for row in rows} == {"example/model-1b"}
