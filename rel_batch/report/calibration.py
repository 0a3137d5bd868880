"""Whether a model is right as often as it says: its distribution over the options, against gold.

    >>> judged = [Judged(confidence=0.8, correct=True, brier=0.08), Judged(0.6, False, 0.72)]
    >>> round(expected_calibration_error(judged), 3), round(brier_score(judged), 3)
    (0.4, 0.4)

The probabilities are those of the options alone, made to add up to 1; how much of the model's
probability lies on the options at all is told beside them (`option_mass`). The confidence is the
probability of the option that the model ranks first.

ECE (Naeini et al. 2015): over 10 bins of equal width, (k/10, (k+1)/10], the mean of |accuracy -
mean confidence| weighted by the bin's rows. Brier (1950), for several options: the sum over options
of (probability - 1 if it is gold, else 0) squared, from 0 to 2, and its mean over rows.

Surprising: neither is a function of the replies. An arm that decodes and measures
(`measure_distortion`) has the same calibration as a `likelihood` arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rel_batch.store import RunFolder
from rel_batch.tasks import task_for

NUM_BINS = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """One distribution held against gold: the first choice's probability, whether it is gold, and
    the squared error of the whole."""

    confidence: float
    correct: bool
    brier: float
    option_mass: float = 1.0


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows whose confidence lies in (low, high]."""

    low: float
    high: float
    n: int
    accuracy: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration of one task and subset under one arm.

    `accuracy` is that of the option ranked first; `option_mass` the mean probability that lies on
    the options together. Bins without rows are left out.
    """

    task: str
    subset: str
    arm: str
    n: int
    accuracy: float
    ece: float
    brier: float
    option_mass: float
    bins: tuple[Bin, ...]


def judge(option_logprobs: Mapping[str, float], gold: str) -> Judged:
    """Hold a distribution against gold, which is one of its options.

    Where two options are equally likely, the first one is the model's choice.
    """
    if gold not in option_logprobs:
        raise ValueError(f"{gold!r} is none of the options {list(option_logprobs)}")
    highest = max(option_logprobs.values())
    weights = {option: math.exp(value - highest) for option, value in option_logprobs.items()}
    total = sum(weights.values())
    shares = {option: weight / total for option, weight in weights.items()}
    first = max(shares, key=lambda option: shares[option])
    return Judged(
        confidence=shares[first],
        correct=first == gold,
        brier=sum((share - (option == gold)) ** 2 for option, share in shares.items()),
        option_mass=math.exp(highest) * total,
    )


def bins_of(judged: Iterable[Judged]) -> tuple[Bin, ...]:
    """The rows by confidence, in bins of equal width; empty bins left out."""
    rows: dict[int, list[Judged]] = {}
    for row in judged:
        # Rounded up: a confidence on a bound belongs to the bin below it.
        number = min(max(math.ceil(row.confidence * NUM_BINS) - 1, 0), NUM_BINS - 1)
        rows.setdefault(number, []).append(row)
    return tuple(
        Bin(
            low=number / NUM_BINS,
            high=(number + 1) / NUM_BINS,
            n=len(rows[number]),
            accuracy=sum(row.correct for row in rows[number]) / len(rows[number]),
            confidence=sum(row.confidence for row in rows[number]) / len(rows[number]),
        )
        for number in sorted(rows)
    )


def expected_calibration_error(judged: Sequence[Judged]) -> float:
    """In [0, 1]; there is at least one row."""
    return sum(b.n * abs(b.accuracy - b.confidence) for b in bins_of(judged)) / len(judged)


def brier_score(judged: Sequence[Judged]) -> float:
    """In [0, 2]; there is at least one row."""
    return sum(row.brier for row in judged) / len(judged)


def calibrations(run: RunFolder) -> tuple[Calibration, ...]:
    """The calibration of every arm, task and subset with a distribution over options.

    Holds four numbers a row, and only of rows that have one. Raises StoreError.
    """
    arms = run.manifest["identity"].get("arms", ())
    kinds = {arm["constraint"] for arm in arms if _has_options(arm)}
    if not kinds:
        return ()
    gold: dict[str, tuple[str, dict[str, str]]] = {}
    for instance in run.read_instances():
        task = task_for(instance.task)
        replies = {
            kind: task.reference_reply_for(instance, kind)
            for kind in task.constraint_kinds
            if kind in kinds
        }
        gold[instance.key] = instance.subset, replies
    groups: dict[tuple[str, str, str], list[Judged]] = {}
    for completion in run.iter_completions(omit=_NOT_NEEDED):
        if completion.option_logprobs is None:
            continue
        subset, replies = gold[completion.instance_key]
        group = groups.setdefault((completion.task, subset, completion.arm), [])
        group.append(judge(completion.option_logprobs, replies[completion.constraint_kind]))
    return tuple(
        Calibration(
            task=task,
            subset=subset,
            arm=arm,
            n=len(judged),
            accuracy=sum(row.correct for row in judged) / len(judged),
            ece=expected_calibration_error(judged),
            brier=brier_score(judged),
            option_mass=sum(row.option_mass for row in judged) / len(judged),
            bins=bins_of(judged),
        )
        for (task, subset, arm), judged in sorted(groups.items())
    )


def calibration_json(calibration: Calibration) -> dict[str, Any]:
    """The figures and their bins as a JSON value."""
    return asdict(calibration)


_NOT_NEEDED = ("output_token_ids", "thought", "token_logprobs", "token_ranks")


def _has_options(arm: Mapping[str, Any]) -> bool:
    return bool(arm.get("measure_distortion")) or arm.get("decoding") == "likelihood"
