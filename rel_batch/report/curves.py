"""Correctness against relational complexity (RC), for each task and arm.

A task's subsets are taken together: REL-A3's 3x3 and 9x9 matrices are its RC 3 and 9. Where there
are more levels than a picture can show, the points of the curve are bins of about equally many
instances; the levels themselves stay in the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rel_batch.report.cells import Cell
from rel_batch.report.evidence import Evidence
from rel_batch.report.statistics import Estimate, Floats, Trend, estimate_share, trend

_MOST_LEVELS = 10


@dataclass(frozen=True, slots=True)
class Level:
    """How one arm did on a task's instances from RC `low` to RC `high`."""

    task: str
    arm: int
    low: int
    high: int
    mean_rc: float
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Curve:
    """Correctness against RC for one task and arm: exact levels, points to draw, and the trend.

    `points` are the levels, or bins of them where there are many.
    """

    task: str
    arm: int
    levels: tuple[Level, ...]
    points: tuple[Level, ...]
    trend: Trend


def curve_of(evidence: Evidence, key: tuple[str, int], cell: Cell) -> Curve:
    task, arm = key
    rc = np.array([evidence.questions[q].rc for q in cell.questions], np.float64)
    values, single = cell.values, cell.is_single

    def level(low: float, high: float) -> Level:
        inside = (rc >= low) & (rc <= high)
        estimate = estimate_share(values[inside], single=single)
        return Level(task, arm, int(low), int(high), float(np.mean(rc[inside])), estimate)

    known = np.unique(rc)
    levels = tuple(level(value, value) for value in known)
    points = levels
    if len(levels) > _MOST_LEVELS:
        points = tuple(level(low, high) for low, high in _bins(rc))
    return Curve(task, arm, levels, points, trend(rc, values, cell.samples))


def _bins(rc: Floats) -> list[tuple[float, float]]:
    """RC intervals of about equally many instances; none splits a level."""
    edges = np.quantile(rc, np.linspace(0, 1, _MOST_LEVELS + 1)[1:], method="higher")
    bins: list[tuple[float, float]] = []
    low = float(np.min(rc))
    for high in np.unique(edges):
        bins.append((low, float(high)))
        above = rc[rc > high]
        low = float(np.min(above)) if len(above) else low
    return bins
