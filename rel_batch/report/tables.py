"""The findings as tables: one definition for the page, for Markdown, for CSV and for Parquet.

    table = results_table(findings)
    table.flat()        # ["task", ..., "score", "score_low", "score_high", "score_n"], rows
    table.shown(row)    # ["REL-A1", ..., "24.8 [18.1, 33.0]"]

Law: no share is shown without its n. A share is a fraction in the files and a percentage on paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode

from rel_batch.report.effects import Effect
from rel_batch.report.findings import Findings
from rel_batch.report.statistics import Estimate
from rel_batch.tasks import task_for

Kind = Literal["text", "count", "number", "percent", "points", "estimate", "change", "slope", "p"]
_WITH_INTERVAL = frozenset({"estimate", "change", "slope"})
NONE = "–"

HEADLINES = {"accuracy": "accuracy", "exact_match": "exact match"}

# What a task's names for failures say to a reader.
REASONS = {
    "disconnected": "a motif is not connected",
    "engine_error": "no reply: the engine failed",
    "constraint_rejected": "no reply: the constraint does not compile",
    "extra_molecules": "wrong molecules of the right formula",
    "extra_taxa": "all of gold's taxa, and extra ones",
    "missing_molecules": "too few: molecules are missing",
    "missing_motif": "an index without a motif",
    "missing_taxa": "some of gold's taxa are missing",
    "no_answer": "no answer in the reply",
    "no_choice": "no choice stated",
    "no_label": "neither yes nor no",
    "not_a_substructure": "a motif is not in its molecule",
    "out_of_range": "a choice that is not offered",
    "repeats_given": "repeats a given molecule",
    "too_long": "no reply: the prompt does not fit the context",
    "too_small": "a motif is too small",
    "truncated": "cut off by the token limit",
    "truncated_thinking": "cut off while thinking",
    "two_motifs": "two motifs for one molecule",
    "undecided": "two choices stated",
    "undecided_substructure": "too costly to tell whether a motif is in its molecule",
    "unknown_taxa": "taxa that are not in the alignment",
    "unparsable_smiles": "a SMILES that RDKit refuses",
    "wrong_choice": "another choice",
    "wrong_formula": "a valid molecule of the wrong formula",
    "wrong_indices": "not every molecule once",
    "wrong_label": "wrong label",
    "wrong_molecule": "another molecule",
    "wrong_taxa": "wrong taxa",
    "wrong_total": "the groups do not sum to the target",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in files, its heading for people, and what its values are."""

    name: str
    heading: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True)
class Linked:
    """A count, and the filter of the browser that shows what was counted."""

    count: int
    link: str


@dataclass(frozen=True)
class Table:
    """A table of values; `name` is its file's, `title` and `note` are for people."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    def flat(self) -> tuple[list[str], list[list[Any]]]:
        """Column names and rows of plain values: an estimate becomes four columns."""
        names: list[str] = []
        for column in self.columns:
            names.append(column.name)
            if column.kind in _WITH_INTERVAL:
                names += [f"{column.name}_{part}" for part in ("low", "high", "n")]
        return names, [self._flat_row(row) for row in self.rows]

    def shown(self, row: Sequence[Any]) -> list[str]:
        """The cells of a row, for people."""
        return [show(value, column.kind) for column, value in zip(self.columns, row, strict=True)]

    def _flat_row(self, row: Sequence[Any]) -> list[Any]:
        values: list[Any] = []
        for column, value in zip(self.columns, row, strict=True):
            if column.kind in _WITH_INTERVAL:
                found: Estimate | None = value
                values += (
                    [None] * 4 if found is None else [found.value, found.low, found.high, found.n]
                )
            else:
                values.append(value.count if isinstance(value, Linked) else value)
        return values


def show(value: Any, kind: Kind) -> str:
    """A value as a person reads it.

    >>> show(Estimate(0.248, 0.181, 0.33, 125), "estimate")
    '24.8 [18.1, 33.0]'
    """
    if isinstance(value, Linked):
        value = value.count
    if value is None or (isinstance(value, Estimate) and value.value is None):
        return NONE
    if isinstance(value, Estimate):
        scale, form = (1.0, "{:+.3f}") if kind == "slope" else (100.0, _FORMS[kind])
        parts = [value.value, value.low, value.high]
        middle, low, high = (NONE if p is None else form.format(scale * p) for p in parts)
        return f"{middle} [{low}, {high}]"
    if kind == "p":
        return "<0.001" if value < 0.001 else f"{value:.3f}"
    if kind == "percent":
        return f"{100 * value:.1f}"
    if kind == "points":
        return f"{100 * value:.1f}"
    if kind == "count":
        return f"{value:,}"
    return f"{value:,.2f}" if kind == "number" else str(value)


_FORMS = {"estimate": "{:.1f}", "change": "{:+.1f}"}


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
    kinds = {task_for(task).headline for task in findings.tasks}
    words = " or ".join(HEADLINES[kind] for kind in sorted(kinds))
    counted = ", ".join(f"{task} {_instances(findings, task)}" for task in findings.tasks)
    mean_of = f" Mean of up to {max(samples)} samples an instance." if max(samples) > 1 else ""
    return Table(
        "answer",
        "Leaderboard" if _is_board(findings) else "Results",
        tuple(columns),
        tuple(rows),
        f"Share of correct replies ({words}) with 95% intervals; whatever is not a correct reply "
        f"counts as not correct.{mean_of} Instances (n): {counted}.",
    )


def results_table(findings: Findings) -> Table:
    """Every figure of every task and arm."""
    ks = sorted({k for result in findings.results for k in result.pass_at})
    optional = [
        ("completion", "completed %"),
        ("upstream", "upstream %"),
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
    columns = (
        Column("task", "task"),
        Column("arm", "arm"),
        Column("headline", "measure"),
        Column("score", "score %", "estimate"),
        Column("n", "n", "count"),
        *(Column(name, heading, "estimate") for name, heading in optional),
        *([Column("set_n", "set n", "count")] if sets else []),
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
            HEADLINES[result.headline],
            result.estimate,
            result.estimate.n,
            *(getattr(result, name) for name, _ in optional),
            *([result.f1 and result.f1.n] if sets else []),
            *(result.pass_at.get(k) for k in ks),
            result.samples,
            result.rows,
            result.missing,
            _linked(result.truncated, task=result.task, arm=label, verdict="truncated"),
            _linked(result.unparsed, task=result.task, arm=label, verdict="unparsed"),
            _linked(result.errors, task=result.task, arm=label, verdict="error"),
        )
        for result in findings.results
    )
    return Table(
        "results",
        "Every figure",
        columns,
        rows,
        "Completed: of all planned instances. Upstream: correct by the reference evaluator's "
        "rules. Precision, recall and F1: means over the set n instances whose gold is a set.",
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
                _linked(c.paired.gained, task=c.task, base=a, arm=b, moved="gained"),
                _linked(c.paired.lost, task=c.task, base=a, arm=b, moved="lost"),
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


def effects_table(findings: Findings) -> Table:
    """What the constraint did, beside whether it helped."""
    optional = [
        column
        for column in (
            Column("thought_tokens", "tokens of thought", "number"),
            Column("overruled", "overruled %", "percent"),
            Column("logprob_cost", "log-prob. cost", "number"),
        )
        if any(getattr(effect, column.name) is not None for effect in findings.effects)
    ]
    columns = (
        Column("task", "task"),
        Column("arm", "arm"),
        Column("rows", "rows", "count"),
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
        return _linked(count, task=e.task, base=base, arm=arm, moved=how)

    rows = tuple(
        (
            e.task,
            findings.arms[e.arm].label,
            e.rows,
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
        "Valid without it: share of the unconstrained arm's replies that this arm's constraint "
        "admits as they are. Gained, lost: requests that changed verdict against the unconstrained "
        "arm. Tokens: mean of a reply. Tokens/s: of one request, median, while others ran beside "
        "it. Prefill computed: prompt tokens that were not in the cache.",
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
                _linked(f.counts.get(n, 0), task=f.task, arm=label, failure=f.reason)
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


def all_tables(findings: Findings) -> Iterable[Table]:
    """Every table, in the order of the report."""
    yield answer_table(findings)
    yield comparisons_table(findings)
    yield trends_table(findings)
    yield effects_table(findings)
    yield failures_table(findings)
    yield results_table(findings)
    yield levels_table(findings)


def _is_board(findings: Findings) -> bool:
    return len(findings.evidence.runs) > 1


def _instances(findings: Findings, task: str) -> str:
    counts = sorted({r.estimate.n for r in findings.results if r.task == task})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"


def _linked(count: int, **filters: str) -> Linked | int:
    """A count with the address of the rows in the page's browser; none lead to nothing."""
    return Linked(count, "#" + urlencode(filters)) if count else count
