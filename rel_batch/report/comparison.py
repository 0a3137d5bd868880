"""One arm against another, instance by instance: which pairs, and what the tests say.

    compare_cells(cells, arm_pairs(evidence))

Comparisons are made on the instances that both sides have a score for, and say how many were left
out. All of a table are corrected together (Holm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rel_batch.constraints import ASSISTED_MARK
from rel_batch.errors import ConfigError, unknown_name
from rel_batch.report.cells import Cells, cells_of
from rel_batch.report.evidence import Evidence
from rel_batch.report.statistics import Paired, compare_paired, holm


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against another on one task.

    Attributes:
        p_holm: the p-value corrected for all comparisons of the report.
        only_baseline, only_other: instances that one side alone has, left out.
    """

    task: str
    baseline: int
    other: int
    paired: Paired
    p_holm: float | None
    only_baseline: int
    only_other: int


def compare_runs(evidence: Evidence) -> tuple[Comparison, ...]:
    """Every comparison that the evidence allows."""
    return compare_cells(cells_of(evidence), arm_pairs(evidence))


def arm_pairs(evidence: Evidence, baseline: str | None = None) -> list[tuple[int, int]]:
    """Which arms are compared, as (baseline, other).

    The baseline is the arm of that label, else the unconstrained arm, else the first. Of several
    runs it is the first run's arm of the same name; the name does not matter where each run has
    one arm. Raises ConfigError where there is no arm of that label.
    """
    arms = evidence.arms
    if baseline is not None:
        labels = [arm.label.removesuffix(ASSISTED_MARK) for arm in arms]
        baseline = baseline.removesuffix(ASSISTED_MARK)
        if baseline not in labels:
            raise ConfigError(unknown_name("arm", baseline, labels))
        first = labels.index(baseline)
        return [(first, other) for other in range(len(arms)) if other != first]
    if len(evidence.runs) == 1:
        first = next((n for n, arm in enumerate(arms) if arm.constraint == "none"), 0)
        return [(first, other) for other in range(len(arms)) if other != first]
    by_run = [[n for n, arm in enumerate(arms) if arm.run == r] for r in range(len(evidence.runs))]
    if all(len(numbers) == 1 for numbers in by_run):
        return [(by_run[0][0], numbers[0]) for numbers in by_run[1:]]
    return [
        (a, b)
        for numbers in by_run[1:]
        for a in by_run[0]
        for b in numbers
        if arms[a].name == arms[b].name
    ]


def compare_cells(cells: Cells, pairs: Sequence[tuple[int, int]]) -> tuple[Comparison, ...]:
    """Compare the arms of each pair on every task that both have."""
    found: list[tuple[str, int, int, Paired, int, int]] = []
    for task in dict.fromkeys(task for task, _ in cells):
        for baseline, other in pairs:
            a, b = cells.get((task, baseline)), cells.get((task, other))
            if a is None or b is None:
                continue
            values_a = dict(zip(a.questions, a.values, strict=True))
            values_b = dict(zip(b.questions, b.values, strict=True))
            both = [question for question in values_a if question in values_b]
            paired = compare_paired(
                np.array([values_a[q] for q in both], np.float64),
                np.array([values_b[q] for q in both], np.float64),
                single=a.is_single and b.is_single,
            )
            found.append(
                (
                    task,
                    baseline,
                    other,
                    paired,
                    len(values_a) - len(both),
                    len(values_b) - len(both),
                )
            )
    tested = [paired.p_value for _, _, _, paired, _, _ in found if paired.p_value is not None]
    corrected = iter(holm(tested))
    return tuple(
        Comparison(
            task,
            baseline,
            other,
            paired,
            None if paired.p_value is None else next(corrected),
            only_a,
            only_b,
        )
        for task, baseline, other, paired, only_a, only_b in found
    )
