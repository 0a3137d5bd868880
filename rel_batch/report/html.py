"""The findings as one page that needs nothing else: `report.html`.

Law: nothing that a model or a data file wrote is ever markup. In the page's tables it is escaped;
replies are packed (`browsing.py`) and shown as text; and a Content Security Policy lets only this
page's own script run, known by its hash, and lets it fetch nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from rel_batch import __version__
from rel_batch.records import SCORING_VERSION
from rel_batch.report.browsing import pack
from rel_batch.report.evidence import Arm
from rel_batch.report.figures import Figure
from rel_batch.report.findings import Findings
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
    levels_table,
    results_table,
    trends_table,
)
from rel_batch.report.tables import Linked, Table


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    interval: str
    link: str
    number: bool
    first: bool


def render_html(findings: Findings, figures: Sequence[Figure]) -> str:
    """The page. Pure: equal findings give equal pages."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    page = files("rel_batch.report.page")
    style = page.joinpath("report.css").read_text("utf-8")
    script = page.joinpath("report.js").read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string(page.joinpath("report.html.j2").read_text("utf-8"))
    return template.render(
        title=title(findings),
        policy=_policy(style, script),
        # Ours, and not escaped: the only texts that are markup.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        runs=findings.evidence.runs,
        arms_in_words=arms_in_words(findings),
        warnings=findings.warnings,
        remarks=findings.remarks,
        answer=answer_table(findings),
        comparisons=comparisons_table(findings),
        trends=trends_table(findings),
        effects=effects_table(findings),
        calibration=calibration_table(findings),
        failures=failures_table(findings),
        sets=sets_table(findings),
        baselines=baselines_table(findings),
        results=results_table(findings),
        levels=levels_table(findings),
        cells=_cells,
        figures=[
            {
                "name": figure.name,
                "title": figure.title,
                "alt": figure.alt,
                "light": _data_uri(figure.image("svg")),
                "dark": _data_uri(figure.image("svg", dark=True)),
            }
            for figure in figures
        ],
        packed=pack(findings.evidence),
        version=__version__,
        scoring_version=SCORING_VERSION,
    )


def title(findings: Findings) -> str:
    """What the report is called."""
    return "REL report: " + ", ".join(run.name for run in findings.evidence.runs)


def arms_in_words(findings: Findings) -> str:
    """How each arm decodes, in a sentence."""
    told = [f"{arm.label} ({', '.join(_in_words(arm))})" for arm in findings.arms]
    return f"{'Arm' if len(told) == 1 else 'Arms'}: {'; '.join(told)}."


def _in_words(arm: Arm) -> Iterator[str]:
    settings = arm.settings
    yield f"constraint {arm.constraint}"
    if settings.get("thinking", "none") != "none":
        yield f"thinking {settings['thinking']}"
    if settings.get("system_prompt"):
        yield "a system prompt"
    if settings.get("json_instruction", "auto") != "auto":
        yield f"{'' if settings['json_instruction'] else 'not '}asked for JSON"
    if examples := settings.get("examples"):
        yield f"{examples} worked example{'s' if examples > 1 else ''}"
    if settings.get("decoding", "generate") != "generate":
        yield f"by {settings['decoding']}"
    if settings.get("temperature"):
        yield f"temperature {settings['temperature']}"
    if settings.get("top_p", 1.0) != 1.0:
        yield f"top_p {settings['top_p']}"
    if arm.samples > 1:
        yield f"{arm.samples} samples"


def _cells(table: Table, row: Sequence[Any]) -> Iterator[_Cell]:
    shown = table.shown(row)
    for place, (column, value, text) in enumerate(zip(table.columns, row, shown, strict=True)):
        middle, bracket, rest = text.partition(" [")
        with_interval = column.kind in ("estimate", "change", "slope")
        yield _Cell(
            text=middle if with_interval else text,
            interval=f"[{rest}" if with_interval and bracket else "",
            link=value.link if isinstance(value, Linked) else "",
            number=column.kind != "text",
            first=place == 0,
        )


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
