"""What a constraint did to the replies, and why replies were not correct."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rel_batch.report.cells import Cell, Cells
from rel_batch.report.evidence import Evidence
from rel_batch.report.statistics import NOTHING, Estimate, estimate_share


@dataclass(frozen=True, slots=True)
class Effect:
    """What an arm's constraint did on one task, beside whether it helped.

    Attributes:
        valid_before: share of the unconstrained arm's replies that this constraint admits.
        free: the unconstrained arm of the same run, where there is another.
        gained, lost: requests that the unconstrained arm got wrong and this one right, and back.
        mean_tokens: generated tokens of a reply; thought_tokens: of them in the thought.
        whitespace: share of the replies' characters.
        tokens_per_s: median over requests of tokens over seconds in the engine, beside others.
        computed_prefill: share of prompt tokens that were not found in the cache.
        overruled, logprob_cost: means over rows where they were measured.
        backends: what masked the tokens; () for no constraint.
        violated: replies that did not keep the constraint; None for no constraint.
        compile_ms: mean over rows of the milliseconds that compiling the row's constraint took.
    """

    task: str
    arm: int
    rows: int
    valid_before: Estimate
    free: int | None
    gained: int | None
    lost: int | None
    truncated: int
    unparsed: int
    mean_tokens: float | None
    thought_tokens: float | None
    whitespace: float | None
    tokens_per_s: float | None
    computed_prefill: float | None
    overruled: float | None
    logprob_cost: float | None
    backends: tuple[str, ...]
    violated: int | None
    compile_ms: float | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why requests of a task were not correct, and how many of each arm's."""

    task: str
    reason: str
    counts: Mapping[int, int]


def effect_of(evidence: Evidence, cells: Cells, key: tuple[str, int]) -> Effect:
    task, number = key
    cell, arm = cells[key], evidence.arms[number]
    generations = [row.generation for row in cell.rows if row.generation and row.has_reply]
    free = next(
        (n for n, a in enumerate(evidence.arms) if a.run == arm.run and a.constraint == "none"),
        None,
    )
    before = None if free is None or free == number else cells.get((task, free))
    valid_before, gained, lost = NOTHING, None, None
    if before is not None:
        valid_before = _valid_before(before, arm.constraint)
        moves = Counter(
            (a.correct, b.correct)
            for question, rows in cell.by_question.items()
            for a, b in zip(before.by_question.get(question, ()), rows, strict=False)
        )
        gained, lost = moves[False, True], moves[True, False]
    characters = sum(g.characters for g in generations)
    prompt_tokens = sum(g.num_prompt_tokens for g in generations)
    return Effect(
        task=task,
        arm=number,
        rows=len(cell.rows),
        valid_before=valid_before,
        free=free if before is not None else None,
        gained=gained,
        lost=lost,
        truncated=sum(row.truncated for row in cell.rows),
        unparsed=sum(row.unparsed for row in cell.rows),
        mean_tokens=_mean(g.num_output_tokens for g in generations),
        thought_tokens=_mean(g.num_thought_tokens for g in generations) or None,
        whitespace=sum(g.whitespace for g in generations) / characters if characters else None,
        tokens_per_s=_median(
            g.num_output_tokens / g.latency_s for g in generations if g.latency_s > 0
        ),
        computed_prefill=(
            1 - sum(g.num_cached_tokens for g in generations) / prompt_tokens
            if prompt_tokens
            else None
        ),
        overruled=_mean(g.overruled_share for g in generations),
        logprob_cost=_mean(g.logprob_cost for g in generations),
        backends=tuple(sorted({g.backend for g in generations if g.backend})),
        violated=(
            None
            if arm.constraint == "none"
            else sum(row.status == "constraint_violated" for row in cell.rows)
        ),
        compile_ms=_mean(None if g.compile_s is None else 1_000 * g.compile_s for g in generations),
    )


def _valid_before(before: Cell, kind: str) -> Estimate:
    shares = [
        sum(kind in row.generation.admitted for row in rows if row.generation) / len(rows)
        for rows in before.by_question.values()
    ]
    return estimate_share(np.array(shares, np.float64), single=before.is_single)


def failures_of(cells: Cells) -> Iterable[Failure]:
    counts: dict[tuple[str, str], Counter[int]] = {}
    for (task, arm), cell in cells.items():
        for row in cell.rows:
            if not row.correct:
                reason = row.failure or "unknown"
                counts.setdefault((task, reason), Counter())[arm] += 1
    for task, reason in sorted(counts, key=lambda key: (key[0], -counts[key].total(), key[1])):
        yield Failure(task, reason, counts[task, reason])


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(np.median(known)) if known else None
