"""The report's tables of what replies are: what a constraint did to them, and why they failed."""

from __future__ import annotations

from collections.abc import Iterable

from rel_batch.report.effects import Effect
from rel_batch.report.findings import Findings
from rel_batch.report.reasons import REASONS
from rel_batch.report.tables import Column, Linked, Table, linked


def effects_table(findings: Findings) -> Table:
    """What the constraint did, beside whether it helped."""
    optional = [
        column
        for column in (
            Column("thought_tokens", "tokens of thought", "number"),
            Column("compile_ms", "compile, ms", "number"),
            Column("overruled", "overruled %", "percent"),
            Column("logprob_cost", "log-prob. cost", "number"),
        )
        if any(getattr(effect, column.name) is not None for effect in findings.effects)
    ]
    masked = any(effect.backends for effect in findings.effects)
    columns = (
        Column("task", "task"),
        Column("arm", "arm"),
        *([Column("backend", "masked by")] if masked else []),
        Column("rows", "rows", "count"),
        Column("violated", "violated", "count"),
        Column("valid_before", "valid without it %", "estimate"),
        Column("gained", "gained", "count"),
        Column("lost", "lost", "count"),
        Column("truncated_share", "truncated %", "percent"),
        Column("unparsed_share", "unparsed %", "percent"),
        Column("mean_tokens", "tokens", "number"),
        Column("whitespace", "whitespace %", "percent"),
        Column("tokens_per_s", "tokens/s", "number"),
        Column("computed_prefill", "prefill computed %", "percent"),
        *optional,
    )

    def moved(e: Effect, count: int | None, how: str) -> Linked | int | None:
        if e.free is None or count is None:
            return None
        arm, base = findings.arms[e.arm].label, findings.arms[e.free].label
        return linked(count, task=e.task, base=base, arm=arm, moved=how)

    rows = tuple(
        (
            e.task,
            findings.arms[e.arm].label,
            *([", ".join(e.backends)] if masked else []),
            e.rows,
            e.violated,
            e.valid_before if e.valid_before.n else None,
            moved(e, e.gained, "gained"),
            moved(e, e.lost, "lost"),
            e.truncated / e.rows,
            e.unparsed / e.rows,
            e.mean_tokens,
            e.whitespace,
            e.tokens_per_s,
            e.computed_prefill,
            *(getattr(e, column.name) for column in optional),
        )
        for e in findings.effects
    )
    return Table(
        "effects",
        "What the constraint did",
        columns,
        rows,
        "Violated: replies that did not keep the constraint when they were checked. "
        "Valid without it: share of the unconstrained arm's replies that this arm's constraint "
        "admits as they are. Gained, lost: requests that changed verdict against the unconstrained "
        "arm. Tokens: mean of a reply. Tokens/s: of one request, median, while others ran beside "
        "it. Prefill computed: prompt tokens that were not in the cache."
        + _told(
            optional,
            compile_ms="Compile: of one row's constraint before the run, mean.",
            overruled="Overruled: reply tokens that were not the model's own first choice, as "
            "without the constraint.",
            logprob_cost="Log-prob. cost: nats of a reply that its tokens lie below these choices, "
            "mean.",
        ),
    )


def _told(columns: Iterable[Column], **meanings: str) -> str:
    """What columns mean, of those that are there."""
    names = {column.name for column in columns}
    return "".join(f" {meaning}" for name, meaning in meanings.items() if name in names)


def calibration_table(findings: Findings) -> Table:
    """Whether the model is right as often as it says, where its distribution was measured."""
    rows = tuple(
        (c.task, c.subset, findings.arms[arm].label, c.n, c.accuracy, c.ece, c.brier, c.option_mass)
        for arm, c in findings.evidence.calibrations
    )
    columns = (
        Column("task", "task"),
        Column("subset", "subset"),
        Column("arm", "arm"),
        Column("n", "n", "count"),
        Column("accuracy", "first choice correct %", "percent"),
        Column("ece", "ECE", "fraction"),
        Column("brier", "Brier score", "fraction"),
        Column("option_mass", "on the options %", "percent"),
    )
    return Table(
        "calibration",
        "Calibration",
        columns,
        rows,
        "The model's own distribution over the options that the constraint admits. ECE: 10 bins of "
        "equal width, from 0 to 1. Brier: over all options, from 0 to 2. On the options: mean "
        "probability that lies on them together.",
    )


def failures_table(findings: Findings) -> Table:
    """Why replies were not correct."""
    labels = [arm.label for arm in findings.arms]
    columns = (
        Column("task", "task"),
        Column("failure", "failure"),
        Column("meaning", "why it was not correct"),
        *(Column(label, label, "count") for label in labels),
    )
    rows = tuple(
        (
            f.task,
            f.reason,
            REASONS.get(f.reason, f.reason.replace("_", " ")),
            *(
                linked(f.counts.get(n, 0), task=f.task, arm=label, failure=f.reason)
                for n, label in enumerate(labels)
            ),
        )
        for f in findings.failures
    )
    totals = ", ".join(
        f"{arm.label} {sum(r.rows for r in findings.results if r.arm == n):,}"
        for n, arm in enumerate(findings.arms)
    )
    return Table("failures", "Failures", columns, rows, f"Rows (n) in all: {totals}.")


def sets_table(findings: Findings) -> Table:
    """How much of a set was found where gold is one."""
    rows = tuple(
        (r.task, findings.arms[r.arm].label, r.precision, r.recall, r.f1, r.f1.n)
        for r in findings.results
        if r.f1
    )
    columns = (
        Column("task", "task"),
        Column("arm", "arm"),
        Column("precision", "precision %", "estimate"),
        Column("recall", "recall %", "estimate"),
        Column("f1", "F1 %", "estimate"),
        Column("n", "n", "count"),
    )
    return Table(
        "sets",
        "How much of the set was found",
        columns,
        rows,
        "Means over the n instances whose gold is a set. Low precision: wrong ones were given; low "
        "recall: some are missing.",
    )
