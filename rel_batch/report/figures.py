"""The findings as pictures: SVG and PNG, in a light and a dark palette.

    for figure in draw_figures(findings): figure.name, figure.alt, figure.image("svg", dark=False)

Law: nothing is told by colour alone; every arm has its own marker, and every picture its text.
"""

# matplotlib's stubs leave much unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from rel_batch.report.curves import Curve
from rel_batch.report.findings import Findings
from rel_batch.report.statistics import Estimate

# Okabe and Ito's colours, told apart by most colour-blind readers; the last two are for many arms.
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#8c6d00", "#56b4e9", "#444444", "#882255")
_DARK = ("#56b4e9", "#ff9a57", "#3ddbae", "#f0a0d8", "#e6c229", "#9ad7ff", "#cccccc", "#ff8fb1")
_MARKERS = "osD^vPX*"
_COLUMNS = 3


@dataclass(frozen=True)
class Figure:
    """A picture: its name, what it shows in words, and how it is drawn."""

    name: str
    title: str
    alt: str
    draw: Callable[[bool], Any]
    _images: dict[tuple[str, bool], bytes] = field(
        default_factory=dict[tuple[str, bool], bytes], repr=False, compare=False
    )

    def image(self, kind: Literal["svg", "png"], *, dark: bool = False) -> bytes:
        """The picture as the bytes of a file; equal findings give equal bytes. Drawn once."""
        if (kind, dark) not in self._images:
            self._images[kind, dark] = self._drawn(kind, dark=dark)
        return self._images[kind, dark]

    def _drawn(self, kind: Literal["svg", "png"], *, dark: bool) -> bytes:
        from matplotlib import rc_context

        settings: Any = {
            # A run may be called anything; none of it is a formula.
            "text.parse_math": False,
            "svg.hashsalt": self.name,
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            **_ink("#e6e6e6" if dark else "#1c1c1c", "#16181b" if dark else "#ffffff"),
        }
        with rc_context(settings):
            drawn = self.draw(dark)
            file = io.BytesIO()
            metadata = {"Date": None, "Creator": "rel-batch"} if kind == "svg" else {}
            drawn.savefig(file, format=kind, dpi=160, metadata=metadata)
        return file.getvalue()


def draw_figures(findings: Findings) -> Iterable[Figure]:
    """The figures that the findings have something for."""
    if findings.results:
        yield Figure(
            "scores",
            "Share of correct replies",
            "Share of correct replies with 95% intervals. " + _scores_in_words(findings),
            lambda dark: _draw_scores(findings, dark=dark),
        )
    curves = [curve for curve in findings.curves if len(curve.levels) > 1]
    if curves:
        yield Figure(
            "rc_curves",
            "Share of correct replies against relational complexity",
            "Share of correct replies against RC with 95% intervals. "
            + _curves_in_words(findings, curves),
            lambda dark: _draw_curves(findings, curves, dark=dark),
        )


def _draw_scores(findings: Findings, *, dark: bool) -> Any:
    from matplotlib.figure import Figure as Canvas

    tasks, arms = findings.tasks, findings.arms
    columns = min(_COLUMNS, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    height = 0.3 + rows * (0.45 + 0.19 * len(arms))
    canvas = Canvas(figsize=(max(2.5 * columns + 0.8, 4.2), height), layout="constrained")
    grid: Any = canvas.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, axes in enumerate(grid.flat):
        if place >= len(tasks):
            axes.set_visible(False)
            continue
        for result in findings.results:
            if result.task == tasks[place]:
                label = arms[result.arm].label
                _points(axes, result.arm, dark, [result.arm], [result.estimate], label, flat=True)
        axes.set_title(tasks[place], fontsize=10)
        axes.set_yticks(range(len(arms)), [arm.label for arm in arms])
        axes.set_ylim(len(arms) - 0.4, -0.6)
        axes.set_xlim(-0.04, 1.04)
        axes.set_xticks([0.0, 0.5, 1.0])
        axes.tick_params(labelbottom=place + columns >= len(tasks))
        axes.xaxis.set_major_formatter(_percent)
        axes.grid(axis="x", alpha=0.25)
    return canvas


def _draw_curves(findings: Findings, curves: list[Curve], *, dark: bool) -> Any:
    from matplotlib.figure import Figure as Canvas

    tasks = list(dict.fromkeys(curve.task for curve in curves))
    columns = min(_COLUMNS, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    canvas = Canvas(figsize=(max(2.9 * columns, 4.2), 0.7 + 2.5 * rows), layout="constrained")
    grid: Any = canvas.subplots(rows, columns, squeeze=False, sharey=True)
    for place, axes in enumerate(grid.flat):
        if place >= len(tasks):
            axes.set_visible(False)
            continue
        some = [curve for curve in curves if curve.task == tasks[place]]
        for curve in some:
            label = findings.arms[curve.arm].label
            # Beside each other, so that intervals do not hide one another.
            width = curve.points[-1].mean_rc - curve.points[0].mean_rc
            shift = 0.012 * width * (curve.arm - (len(findings.arms) - 1) / 2)
            rc = [level.mean_rc + shift for level in curve.points]
            estimates = [level.estimate for level in curve.points]
            _points(axes, curve.arm, dark, rc, estimates, label, flat=False)
        binned = any(len(curve.points) < len(curve.levels) for curve in some)
        axes.set_title(tasks[place] + (" (binned)" if binned else ""), fontsize=10)
        axes.set_xlabel("RC")
        if not binned:
            axes.set_xticks([level.low for level in some[0].levels])
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(_percent)
        axes.grid(alpha=0.25)
    if len(findings.arms) > 1:
        handles, labels = grid.flat[0].get_legend_handles_labels()
        canvas.legend(
            handles, labels, loc="outside upper left", ncols=min(len(labels), 4), frameon=False
        )
    return canvas


def _points(
    axes: Any,
    number: int,
    dark: bool,
    places: list[float],
    estimates: list[Estimate],
    label: str,
    *,
    flat: bool,
) -> None:
    """Estimates with their intervals: along the y axis if `flat`, else a line along x."""
    palette = _DARK if dark else _LIGHT
    known = [
        (place, e.value, e.value - e.low, e.high - e.value)
        for place, e in zip(places, estimates, strict=True)
        if e.value is not None and e.low is not None and e.high is not None
    ]
    if not known:
        return
    where, values, below, above = zip(*known, strict=True)
    style: dict[str, Any] = {
        "color": palette[number % len(palette)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 5,
        "capsize": 2,
        "elinewidth": 1.2,
        "label": label,
    }
    if flat:
        axes.errorbar(values, where, xerr=(below, above), linestyle="none", **style)
    else:
        axes.errorbar(where, values, yerr=(below, above), linewidth=1.2, **style)


def _percent(value: float, _: int) -> str:
    return f"{100 * value:.0f}%"


def _ink(ink: str, paper: str) -> dict[str, str]:
    drawn = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    filled = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    return {**dict.fromkeys(drawn, ink), **dict.fromkeys(filled, paper)}


def _scores_in_words(findings: Findings) -> str:
    return " ".join(
        f"{r.task}, {findings.arms[r.arm].label}: {_in_words(r.estimate)}."
        for r in findings.results
    )


def _curves_in_words(findings: Findings, curves: list[Curve]) -> str:
    told: list[str] = []
    for curve in curves:
        first, last = curve.points[0], curve.points[-1]
        told.append(
            f"{curve.task}, {findings.arms[curve.arm].label}: {_in_words(first.estimate)} at RC "
            f"{_levels(first.low, first.high)}, {_in_words(last.estimate)} at RC "
            f"{_levels(last.low, last.high)}."
        )
    return " ".join(told)


def _in_words(estimate: Estimate) -> str:
    return "none" if estimate.value is None else f"{100 * estimate.value:.1f}% of {estimate.n:,}"


def _levels(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
