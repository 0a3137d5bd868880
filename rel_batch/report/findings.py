"""From evidence to everything that a report says, as values; draws and writes nothing.

    findings = find(read_evidence([run]))
    findings.results[0].estimate     # Estimate(value=0.248, low=..., n=125, method="wilson")

A task's instances are taken over its subsets; n is always a number of instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rel_batch.constraints import ASSISTED
from rel_batch.report.cells import Cell, Cells, cells_of, mean_of
from rel_batch.report.comparison import Comparison, arm_pairs, compare_cells
from rel_batch.report.curves import Curve, curve_of
from rel_batch.report.effects import Effect, Failure, effect_of, failures_of
from rel_batch.report.evidence import Arm, Evidence, Question
from rel_batch.report.statistics import (
    Estimate,
    estimate_share,
    majority_vote,
    mean_of_estimates,
    pass_at_k,
    rank_correlation,
)
from rel_batch.tasks import task_for


@dataclass(frozen=True, slots=True)
class Result:
    """How one arm did on one task.

    Attributes:
        estimate: accuracy or exact match; with several samples their mean (mean@n).
        pass_at: pass@k for each k asked, where there are several samples.
        majority: majority vote over the samples, where there are several.
        completion: of all planned instances, how many met every requirement (not for choices).
        audited: by gold without its known faults, where that was scored; `audited_differs` counts
            the rows where the two verdicts disagree.
        rows, missing, truncated, unparsed, errors: counts of requests.
    """

    task: str
    arm: int
    headline: str
    estimate: Estimate
    samples: int
    pass_at: Mapping[int, Estimate]
    majority: Estimate | None
    completion: Estimate | None
    upstream: Estimate | None
    audited: Estimate | None
    audited_differs: int | None
    precision: Estimate | None
    recall: Estimate | None
    f1: Estimate | None
    rows: int
    missing: int
    truncated: int
    unparsed: int
    errors: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a shortcut that needs no model scores on one task's instances of the runs.

    `bears_on_rule` says that it is the task's rule itself or its opposite.
    """

    task: str
    name: str
    bears_on_rule: bool
    estimate: Estimate


@dataclass(frozen=True)
class Findings:
    """All that a report says; `overall` is each arm's mean over its tasks, nothing for an assisted
    one."""

    evidence: Evidence
    results: tuple[Result, ...]
    overall: Mapping[int, Estimate]
    curves: tuple[Curve, ...]
    comparisons: tuple[Comparison, ...]
    effects: tuple[Effect, ...]
    failures: tuple[Failure, ...]
    baselines: tuple[Baseline, ...]
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(result.task for result in self.results))

    @property
    def arms(self) -> tuple[Arm, ...]:
        return self.evidence.arms


def find(evidence: Evidence, *, baseline: str | None = None) -> Findings:
    """Everything that can be said of the evidence. Pure.

    `baseline` names the arm that the others are compared with. Raises ConfigError where there
    is no such arm.
    """
    cells = cells_of(evidence)
    curves = tuple(curve_of(evidence, key, cell) for key, cell in cells.items())
    results = tuple(_result(evidence, key, cell) for key, cell in cells.items())
    pairs = arm_pairs(evidence, baseline)
    comparisons = compare_cells(cells, pairs)
    return Findings(
        evidence=evidence,
        results=results,
        overall=_overall(evidence, results),
        curves=curves,
        comparisons=comparisons,
        effects=tuple(effect_of(evidence, cells, key) for key in cells),
        failures=tuple(failures_of(cells)),
        baselines=tuple(_baselines(evidence)),
        warnings=tuple(_warnings(evidence)),
        remarks=tuple(_remarks(evidence, cells, comparisons)),
    )


def _result(evidence: Evidence, key: tuple[str, int], cell: Cell) -> Result:
    task_name, arm = key
    task = task_for(task_name)
    planned_rows = sum(
        count
        for (number, name, _), count in evidence.planned.items()
        if (name, number) == (task_name, arm)
    )
    samples = int(cell.samples.max())
    rows = cell.rows
    missing = max(0, planned_rows - len(rows))
    completion = None
    if task.headline != "accuracy":
        # An instance without a row has met nothing.
        planned = planned_rows // max(samples, evidence.arms[arm].samples)
        absent = max(0, planned - len(cell.questions))
        completion = estimate_share(
            np.concatenate([cell.values, np.zeros(absent)]), single=cell.is_single
        )
    asked = [row for row in rows if row.upstream_correct is not None]
    audited = [row for row in rows if row.audited_correct is not None]
    return Result(
        task=task_name,
        arm=arm,
        headline=task.headline,
        estimate=estimate_share(cell.values, single=cell.is_single),
        samples=samples,
        pass_at=_pass_at(cell, samples),
        majority=_majority(cell) if samples > 1 else None,
        completion=completion,
        upstream=mean_of(cell, "upstream_correct", single=cell.is_single) if asked else None,
        audited=mean_of(cell, "audited_correct", single=cell.is_single) if audited else None,
        audited_differs=sum(r.audited_correct != r.correct for r in audited) if audited else None,
        precision=mean_of(cell, "precision"),
        recall=mean_of(cell, "recall"),
        f1=mean_of(cell, "f1"),
        rows=len(rows),
        missing=missing,
        truncated=sum(row.truncated for row in rows),
        unparsed=sum(row.unparsed for row in rows),
        errors=sum(not row.has_reply for row in rows),
    )


def _pass_at(cell: Cell, samples: int) -> dict[int, Estimate]:
    """pass@k for powers of two up to the samples, over the instances that have them all."""
    if samples == 1:
        return {}
    whole = cell.samples == samples
    correct = [int(c) for c in cell.correct[whole]]
    ks = sorted({2**power for power in range(samples.bit_length())} | {samples})
    return {
        k: estimate_share(pass_at_k(correct, [samples] * len(correct), k), single=False)
        for k in ks
        if 1 < k <= samples
    }


def _majority(cell: Cell) -> Estimate:
    votes = [
        majority_vote([row.vote for row in rows], [row.correct for row in rows])
        for rows in cell.by_question.values()
    ]
    return estimate_share(np.array(votes, np.float64), single=True)


def _overall(evidence: Evidence, results: Sequence[Result]) -> dict[int, Estimate]:
    return {
        number: mean_of_estimates(
            [r.estimate for r in results if r.arm == number and arm.constraint not in ASSISTED]
        )
        for number, arm in enumerate(evidence.arms)
    }


def _warnings(evidence: Evidence) -> Iterable[str]:
    """What a reader must know before looking at a number."""
    missing = sum(evidence.planned.values()) - len(evidence.rows)
    if missing > 0:
        unscored = sum(run.unscored for run in evidence.runs)
        waiting = f"; {unscored:,} of them wait to be scored" if unscored else ""
        total = sum(evidence.planned.values())
        yield f"Incomplete: {missing:,} of {total:,} planned rows are missing{waiting}."


def _remarks(evidence: Evidence, cells: Cells, comparisons: Sequence[Comparison]) -> Iterable[str]:
    """What a reader must know before believing a number."""
    left_out = [c for c in comparisons if c.only_baseline or c.only_other]
    if left_out:
        tasks = ", ".join(dict.fromkeys(c.task for c in left_out))
        yield (
            "Not every instance is in both sides of a comparison. It is then restricted to the "
            f"instances that are (n says how many): {tasks}."
        )
    yield from _tasks_without_an_arm(evidence, cells)
    yield from _entities_that_move(evidence.questions)


def _tasks_without_an_arm(evidence: Evidence, cells: Cells) -> Iterable[str]:
    tasks = {task for task, _ in cells}
    absent: list[str] = []
    for number, arm in enumerate(evidence.arms):
        here = {task for task, n in cells if n == number}
        planned = {task for n, task, _ in evidence.planned if n == number}
        if here and tasks - planned:
            why = (
                f"its constraint ({arm.constraint}) means nothing there"
                if any(arm.constraint not in task_for(t).constraint_kinds for t in tasks - planned)
                else "the run has nothing of the arm there"
            )
            yield (
                f"Arm {arm.label} is left out for {', '.join(sorted(tasks - planned))}: {why}; its "
                "mean is over the other tasks and not comparable."
            )
        if (tasks & planned) - here:
            absent.append(f"{arm.label} ({', '.join(sorted((tasks & planned) - here))})")
    if absent:
        told = "; ".join(absent)
        yield f"Arms without a row of some tasks, whose means cannot be compared: {told}."


def _baselines(evidence: Evidence) -> Iterable[Baseline]:
    """A task's instances are taken over its subsets, as everywhere."""
    counts: dict[tuple[str, str, bool], list[int]] = {}
    for row in evidence.baselines:
        count = counts.setdefault((row.task, row.baseline, row.bears_on_rule), [0, 0])
        count[0] += row.correct
        count[1] += row.n
    for (task, name, bears_on_rule), (correct, n) in counts.items():
        values = np.repeat([1.0, 0.0], [correct, n - correct])
        yield Baseline(task, name, bears_on_rule, estimate_share(values, single=True))


def _entities_that_move(questions: Sequence[Question]) -> Iterable[str]:
    by_task: dict[str, list[Question]] = {}
    for question in questions:
        by_task.setdefault(question.task, []).append(question)
    moving: list[str] = []
    for task, some in sorted(by_task.items()):
        rc = np.array([q.rc for q in some], np.float64)
        entities = np.array([q.num_entities for q in some], np.float64)
        rho, p_value = rank_correlation(rc, entities)
        if rho is not None and p_value is not None and abs(rho) >= 0.3 and p_value < 0.05:
            moving.append(f"{task} ({rho:+.2f} over {len(some):,} instances)")
    if moving:
        yield (
            "The number of entities moves with RC, so that an effect of RC cannot be told from one "
            f"of size (Spearman): {', '.join(moving)}."
        )
