"""The report in a real headless Chromium."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ablation_runs import ablation_run
from browser import Chromium, chromium_path

from rel_batch.report.evidence import Evidence, read_evidence
from rel_batch.report.findings import find
from rel_batch.report.publish import publish_report

pytestmark = pytest.mark.skipif(
    chromium_path() is None, reason="chromium is not installed (Debian: apt-get install chromium)"
)

COUNT = "document.querySelectorAll('#list > li').length"
FOUND = "document.getElementById('found').textContent"


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return read_evidence([ablation_run(tmp_path_factory.mktemp("run") / "small")])


@pytest.fixture(scope="module")
def page_path(evidence: Evidence, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_report(find(evidence), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


def choose(name: str, value: str) -> str:
    """JavaScript that sets a filter as a user does."""
    return (
        f"(() => {{ const e = document.getElementById('filters').elements['{name}'];"
        f" e.value = {value!r}; e.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
    )


def test_it_opens_without_complaint_and_fetches_nothing(browser: Chromium, page_path: Path) -> None:
    page = browser.open(page_path)
    assert page.complaints() == []
    outside = [url for url in page.requested() if not url.startswith(("data:", "file:"))]
    assert outside == []
    assert page.evaluate(FOUND) == "26 of 26 instances."
    loaded = "[...document.images].every((i) => i.complete && i.naturalWidth > 0)"
    page.wait_for(loaded)


def test_filters_narrow_the_list(browser: Chromium, page_path: Path, evidence: Evidence) -> None:
    page = browser.open(page_path)
    page.evaluate(choose("task", "REL-C1"))
    page.wait_for(f"{FOUND} === '6 of 26 instances.'")
    assert page.evaluate(COUNT) == 6
    page.evaluate(choose("arm", "none"))
    page.evaluate(choose("verdict", "unparsed"))
    expected = sum(
        row.unparsed and row.arm == 0 and evidence.questions[row.question].task == "REL-C1"
        for row in evidence.rows
    )
    assert expected > 0
    page.wait_for(f"{FOUND} === '{expected} of 26 instances.'")
    assert "task=REL-C1&arm=none&verdict=unparsed" in page.evaluate("location.hash")
    page.evaluate("document.querySelector('#filters [type=reset]').click()")
    page.wait_for(f"{FOUND} === '26 of 26 instances.'")
    page.evaluate(choose("low", "5"))
    of_rc = sum(question.rc >= 5 for question in evidence.questions)
    page.wait_for(f"{FOUND} === '{of_rc} of 26 instances.'")


def test_counts_lead_to_the_rows_that_they_count(
    browser: Chromium, page_path: Path, evidence: Evidence
) -> None:
    gained = [c for c in find(evidence).comparisons if c.paired.gained]
    page = browser.open(page_path)
    for comparison in gained:
        link = f"#comparison a[href*='task={comparison.task}'][href*='moved=gained']"
        page.evaluate(f'document.querySelector("{link}").click()')
        page.wait_for(f"{FOUND} === '{comparison.paired.gained} of 26 instances.'")
    assert gained


def test_search_finds_a_text_in_any_reply(
    browser: Chromium, page_path: Path, evidence: Evidence
) -> None:
    page = browser.open(page_path)
    page.evaluate(choose("search", "NOT SURE"))
    holding = {row.question for row in evidence.rows if "not sure" in evidence.texts_of(row).reply}
    assert holding
    page.wait_for(f"{FOUND} === '{len(holding)} of 26 instances.'")


def test_an_instance_shows_prompt_gold_replies_and_why(
    browser: Chromium, page_path: Path, evidence: Evidence
) -> None:
    page = browser.open(page_path, fragment="#task=REL-C1")
    page.evaluate("document.querySelector('#list summary').click()")
    page.wait_for("document.querySelector('#list pre') !== null")
    first = next(n for n, q in enumerate(evidence.questions) if q.task == "REL-C1")
    shown = page.evaluate("[...document.querySelectorAll('#list pre')].map((p) => p.textContent)")
    replies = [
        evidence.texts_of(row).reply or "(empty)"
        for row in evidence.rows
        if row.question == first and row.generation
    ]
    assert shown == [*evidence.prompt_and_gold(first), *replies]
    why = page.evaluate("document.querySelector('#list .why').textContent")
    assert "Status" in why


def test_a_hostile_reply_is_a_text_and_does_nothing(browser: Chromium, page_path: Path) -> None:
    page = browser.open(page_path, fragment="#search=window.hostile")
    page.evaluate("document.querySelectorAll('#list details').forEach((d) => { d.open = true; })")
    hostile = (
        "[...document.querySelectorAll('#list pre')]"
        ".filter((p) => p.textContent.includes('window.hostile'))"
    )
    page.wait_for(f"{hostile}.length > 0")
    assert page.evaluate(f"{hostile}[0].textContent.startsWith('<script>')")
    assert page.evaluate(f"{hostile}.every((p) => p.children.length === 0)")
    assert page.evaluate("window.hostile === undefined")
    assert page.complaints() == []


def test_the_policy_stops_a_script_that_is_not_the_pages_own(
    browser: Chromium, page_path: Path
) -> None:
    page = browser.open(page_path)
    page.evaluate(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.own = 1';"
        " document.body.append(s); })()"
    )
    assert page.evaluate("window.own === undefined")
    assert any("Content Security Policy" in complaint for complaint in page.complaints())


def test_an_instance_opens_with_the_keyboard_alone(browser: Chromium, page_path: Path) -> None:
    page = browser.open(page_path)
    page.evaluate("document.querySelector('#filters [type=reset]').focus()")
    page.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.press("Enter")
    page.wait_for("document.querySelector('#list pre') !== null")


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_no_width_makes_the_page_scroll_sideways(
    browser: Chromium, page_path: Path, width: int
) -> None:
    page = browser.open(page_path, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Chromium, page_path: Path, scheme: str) -> None:
    """WCAG AA: a contrast of at least 4.5 for every colour of text."""
    page = browser.open(page_path)
    page.prefer(scheme)
    page.evaluate("document.querySelectorAll('#list details').forEach((d) => { d.open = true; })")
    page.wait_for("document.querySelector('#list .why b') !== null")
    worst = page.evaluate(CONTRAST)
    assert worst["ratio"] >= 4.5, worst


def test_100_000_rows_are_paged_filtered_and_searched(
    browser: Chromium, evidence: Evidence, tmp_path: Path
) -> None:
    copies = 100_000 // len(evidence.rows) + 1
    size = len(evidence.questions)
    many = dataclasses.replace(
        evidence,
        questions=tuple(
            dataclasses.replace(question, id=f"{question.id}-{copy}")
            for copy in range(copies)
            for question in evidence.questions
        ),
        rows=tuple(
            dataclasses.replace(row, question=row.question + copy * size)
            for copy in range(copies)
            for row in evidence.rows
        ),
    )
    path = publish_report(find(many), tmp_path / "many")
    assert path.stat().st_size < 16_000_000
    page = browser.open(path)
    total = f"{copies * size:,}"
    assert page.evaluate(FOUND) == f"{total} of {total} instances."
    assert page.evaluate(COUNT) == 25
    page.evaluate(choose("task", "REL-C1"))
    page.wait_for(f"{FOUND} === '{copies * 6:,} of {total} instances.'")
    page.evaluate("document.getElementById('next').click()")
    assert page.evaluate("document.getElementById('page').textContent").startswith("Page 2 of")
    page.evaluate(choose("search", f"-{copies - 1}"))
    page.wait_for(f"/^[1-9]\\d* of {total} instances\\.$/.test({FOUND}) && {COUNT} > 0")
    # Whatever was found, the page never holds more than it shows.
    assert page.evaluate("document.querySelectorAll('*').length") < 5_000
    assert page.complaints() == []


def test_screenshots_for_people(browser: Chromium, page_path: Path) -> None:
    """Writes wide.png, narrow.png and print.pdf where REL_BATCH_SCREENSHOTS names a folder."""
    folder = os.environ.get("REL_BATCH_SCREENSHOTS")
    page = browser.open(page_path)
    for name, width, scheme in (("wide", 1200, "light"), ("narrow", 390, "dark")):
        page.resize(width, 900)
        page.prefer(scheme)
        shot = page.screenshot()
        assert shot.startswith(b"\x89PNG")
        if folder:
            (Path(folder) / f"{name}.png").write_bytes(shot)
    printed = page.print()
    assert printed.startswith(b"%PDF")
    if folder:
        (Path(folder) / "print.pdf").write_bytes(printed)


CONTRAST = """
(() => {
  const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => {
    const [r, g, b] = c.map((v) => v / 255)
      .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  let worst = { ratio: 99 };
  for (const e of document.querySelectorAll('body *')) {
    const hasText = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (e.disabled || !hasText || !e.checkVisibility()) continue;
    const a = light(parse(getComputedStyle(e).color).slice(0, 3)), b = light(ground(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst.ratio) worst = { ratio, text: e.textContent.slice(0, 40), tag: e.tagName };
  }
  return worst;
})()
"""
