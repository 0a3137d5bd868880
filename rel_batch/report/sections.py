"""The tables that a report is made of, from its findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rel_batch.constraints import ASSISTED
from rel_batch.report.findings import Baseline, Findings
from rel_batch.report.reply_tables import (
    calibration_table,
    effects_table,
    failures_table,
    sets_table,
)
from rel_batch.report.tables import Column, Table, linked
from rel_batch.tasks import task_for

_HEADLINES = {"accuracy": "accuracy", "exact_match": "exact match"}


def answer_table(findings: Findings) -> Table:
    """One row for each arm, one column for each task: what a reader came for."""
    by_place = {(result.arm, result.task): result for result in findings.results}
    arms = [n for n in range(len(findings.arms)) if findings.overall[n].n]
    arms.sort(key=lambda n: -(findings.overall[n].value or 0.0) if _is_board(findings) else 0)
    samples = {result.samples for result in findings.results}
    columns = [Column("arm", "arm")]
    if _is_board(findings):
        columns += [Column("model", "checkpoint"), Column("commit", "commit")]
    columns += [Column("mean", "mean of tasks %", "estimate"), Column("n", "n", "count")]
    columns += [Column(task, f"{task} %", "estimate") for task in findings.tasks]
    rows: list[tuple[Any, ...]] = []
    for number in arms:
        arm, overall = findings.arms[number], findings.overall[number]
        run = findings.evidence.runs[arm.run]
        board = (run.model, run.commit[:12]) if _is_board(findings) else ()
        cells = [
            result.estimate if (result := by_place.get((number, task))) else None
            for task in findings.tasks
        ]
        rows.append((arm.label, *board, overall, overall.n, *cells))
    best = _best_baselines(findings)
    if best:
        cells = [best[task].estimate if task in best else None for task in findings.tasks]
        board = ("", "") if _is_board(findings) else ()
        rows.append(("best shortcut", *board, None, None, *cells))
    kinds = {task_for(task).headline for task in findings.tasks}
    words = " or ".join(_HEADLINES[kind] for kind in sorted(kinds))
    counted = ", ".join(f"{task} {_instances(findings, task)}" for task in findings.tasks)
    most = max(samples, default=1)
    mean_of = f" Mean of up to {most} samples an instance." if most > 1 else ""
    aided = [arm.label for arm in findings.arms if arm.constraint in ASSISTED]
    assisted = (
        f" Not here: {', '.join(aided)}: what is given a part of the answer is no score. It stands "
        "under Every figure."
        if aided
        else ""
    )
    shortcut = " Best shortcut: needs no model; all of them are under Shortcuts." if best else ""
    return Table(
        "answer",
        "Leaderboard" if _is_board(findings) else "Results",
        tuple(columns),
        tuple(rows),
        f"Share of correct replies ({words}) with 95% intervals; whatever is not a correct reply "
        f"counts as not correct.{mean_of}{shortcut}{assisted} Instances (n): {counted}.",
    )


def results_table(findings: Findings) -> Table:
    """Every figure of every task and arm."""
    ks = sorted({k for result in findings.results for k in result.pass_at})
    optional = [
        ("completion", "completed %"),
        ("upstream", "upstream %"),
        ("audited", "audited %"),
        ("precision", "precision %"),
        ("recall", "recall %"),
        ("f1", "F1 %"),
        ("majority", "majority vote %"),
    ]
    optional = [
        (name, heading)
        for name, heading in optional
        if any(getattr(result, name) is not None for result in findings.results)
    ]
    sets = any(result.f1 for result in findings.results)
    audits = any(result.audited for result in findings.results)
    columns = (
        Column("task", "task"),
        Column("arm", "arm"),
        Column("headline", "measure"),
        Column("score", "score %", "estimate"),
        Column("n", "n", "count"),
        *(Column(name, heading, "estimate") for name, heading in optional),
        *([Column("set_n", "set n", "count")] if sets else []),
        *([Column("audited_differs", "audited differs", "count")] if audits else []),
        *(Column(f"pass_at_{k}", f"pass@{k} %", "estimate") for k in ks),
        Column("samples", "samples", "count"),
        Column("rows", "rows", "count"),
        Column("missing", "missing", "count"),
        Column("truncated", "truncated", "count"),
        Column("unparsed", "unparsed", "count"),
        Column("errors", "errors", "count"),
    )
    rows = tuple(
        (
            result.task,
            (label := findings.arms[result.arm].label),
            _HEADLINES[result.headline],
            result.estimate,
            result.estimate.n,
            *(getattr(result, name) for name, _ in optional),
            *([result.f1 and result.f1.n] if sets else []),
            *([result.audited_differs] if audits else []),
            *(result.pass_at.get(k) for k in ks),
            result.samples,
            result.rows,
            result.missing,
            linked(result.truncated, task=result.task, arm=label, verdict="truncated"),
            linked(result.unparsed, task=result.task, arm=label, verdict="unparsed"),
            linked(result.errors, task=result.task, arm=label, verdict="error"),
        )
        for result in findings.results
    )
    return Table(
        "results",
        "Every figure",
        columns,
        rows,
        "Completed: of all planned instances. Upstream: correct by the reference evaluator's "
        "rules. Precision, recall and F1: means over the set n instances whose gold is a set."
        + (
            " Audited: by gold without its known faults; it differs from the score on so many rows."
            if audits
            else ""
        ),
    )


def levels_table(findings: Findings) -> Table:
    """Every task and arm by RC."""
    rows = tuple(
        (level.task, findings.arms[level.arm].label, level.low, level.estimate, level.estimate.n)
        for curve in findings.curves
        for level in curve.levels
    )
    columns = (
        Column("task", "task"),
        Column("arm", "arm"),
        Column("rc", "RC", "count"),
        Column("score", "score %", "estimate"),
        Column("n", "n", "count"),
    )
    return Table("by_rc", "By relational complexity", columns, rows)


def trends_table(findings: Findings) -> Table:
    """Whether correctness moves with RC."""
    rows = tuple(
        (
            curve.task,
            findings.arms[curve.arm].label,
            curve.trend.n,
            curve.trend.rho,
            curve.trend.rho_p,
            curve.trend.slope,
            curve.trend.why_no_slope,
        )
        for curve in findings.curves
        if len(curve.levels) > 1
    )
    columns = (
        Column("task", "task"),
        Column("arm", "arm"),
        Column("n", "n", "count"),
        Column("spearman", "Spearman ρ", "number"),
        Column("spearman_p", "p", "p"),
        Column("slope", "logistic slope per RC", "slope"),
        Column("no_slope", "why no slope"),
    )
    return Table(
        "trends",
        "Does correctness move with RC?",
        columns,
        rows,
        "Slope: change of the log-odds of a correct reply for one more RC, with its 95% interval. "
        "p is not corrected for the number of rows.",
    )


def comparisons_table(findings: Findings) -> Table:
    """The paired comparisons."""
    several = len({c.baseline for c in findings.comparisons}) > 1
    rows: list[tuple[Any, ...]] = []
    for c in findings.comparisons:
        a, b = findings.arms[c.baseline].label, findings.arms[c.other].label
        rows.append(
            (
                c.task,
                a,
                b,
                c.paired.difference,
                c.paired.difference.n,
                c.paired.p_value,
                c.p_holm,
                c.paired.test,
                linked(c.paired.gained, task=c.task, base=a, arm=b, moved="gained"),
                linked(c.paired.lost, task=c.task, base=a, arm=b, moved="lost"),
                c.paired.detectable,
                c.only_baseline + c.only_other,
            )
        )
    columns = (
        Column("task", "task"),
        Column("baseline", "compared with"),
        Column("arm", "arm"),
        Column("difference", "difference, points", "change"),
        Column("n", "n", "count"),
        Column("p", "p", "p"),
        Column("p_holm", "p (Holm)", "p"),
        Column("test", "test"),
        Column("gained", "gained", "count"),
        Column("lost", "lost", "count"),
        Column("detectable", "detectable, points", "points"),
        Column("left_out", "left out", "count"),
    )
    other = "" if several or not rows else f" Compared with {rows[0][1]}."
    return Table(
        "comparisons",
        "Paired comparison",
        columns,
        tuple(rows),
        f"The same instances under both.{other} Gained, lost: instances that became better, and "
        "worse. Detectable: the smallest true difference that this test would find in four of "
        "five repetitions at this n. Holm: corrected for all rows. Left out: instances that one "
        "side alone has. At small n the interval is approximate; McNemar's test is exact.",
    )


def baselines_table(findings: Findings) -> Table:
    """The shortcuts that need no model, each task's best first."""
    ordered = sorted(findings.baselines, key=lambda b: (b.task, -(b.estimate.value or 0.0)))
    rows = tuple(
        (b.task, b.name, "yes" if b.bears_on_rule else "", b.estimate, b.estimate.n)
        for b in ordered
    )
    columns = (
        Column("task", "task"),
        Column("shortcut", "shortcut"),
        Column("bears_on_rule", "is the rule or its opposite"),
        Column("score", "score %", "estimate"),
        Column("n", "n", "count"),
    )
    return Table(
        "baselines",
        "Shortcuts",
        columns,
        rows,
        "Replies that need no model, on the same instances and judged by the same rules: a model's "
        "score is to be read against the best of these that is not the rule itself.",
    )


def _best_baselines(findings: Findings) -> dict[str, Baseline]:
    """Each task's best shortcut, of those that are not the rule itself."""
    best: dict[str, Baseline] = {}
    for baseline in findings.baselines:
        known = best.get(baseline.task)
        if not baseline.bears_on_rule and (
            known is None or (baseline.estimate.value or 0.0) > (known.estimate.value or 0.0)
        ):
            best[baseline.task] = baseline
    return best


def all_tables(findings: Findings) -> Iterable[Table]:
    """Every table, in the order of the report."""
    yield answer_table(findings)
    yield comparisons_table(findings)
    yield trends_table(findings)
    yield effects_table(findings)
    if findings.evidence.calibrations:
        yield calibration_table(findings)
    yield failures_table(findings)
    if any(result.f1 for result in findings.results):
        yield sets_table(findings)
    if findings.baselines:
        yield baselines_table(findings)
    yield results_table(findings)
    yield levels_table(findings)


def _is_board(findings: Findings) -> bool:
    return len(findings.evidence.runs) > 1


def _instances(findings: Findings, task: str) -> str:
    counts = sorted({r.estimate.n for r in findings.results if r.task == task})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
