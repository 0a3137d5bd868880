"""The second pass: a verdict on every reply, from the run folder to the run folder.

    summary = score_run(RunFolder.open(path))

Scores mirror the completions part by part and row by row, so only what is missing is scored,
any process may score any part, and a GPU is needed for none of it. Scores of another
`SCORING_VERSION` stay beside the new ones. A score is a function of the instance and the reply
alone: an exception in one row is a bug of ours and stops the pass with the row's key.

Surprising: a row without a reply (too long, engine error) has a score too, so that the parts
stay aligned: unparsed, with its status as the failure, and no upstream verdict at all.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rel_batch.errors import StoreError
from rel_batch.judge import score_reply
from rel_batch.records import (
    SCORING_VERSION,
    STATUSES_WITHOUT_REPLY,
    Completion,
    Instance,
    Score,
)
from rel_batch.store import FileGoneError, RunFolder, ScoreRow

__all__ = [
    "SCORING_VERSION",
    "Counts",
    "PartTally",
    "score_completion",
    "score_part",
    "score_run",
]


# What a score does not depend on, and most of a part's weight.
_NOT_SCORED = ("output_token_ids", "thought", "token_logprobs", "token_ranks", "option_logprobs")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows there are, and what became of them."""

    rows: int = 0
    correct: int = 0
    unparsed: int = 0
    truncated: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.rows + other.rows,
            self.correct + other.correct,
            self.unparsed + other.unparsed,
            self.truncated + other.truncated,
        )


@dataclass(frozen=True, slots=True)
class PartTally:
    """What scoring one part, or several, has found, by task.

    `unparsed` counts replies that were finished and could not be read; a truncated reply counts
    as truncated, and a row without a reply as neither.
    """

    by_task: Mapping[str, Counts] = field(default_factory=dict[str, Counts])

    def __add__(self, other: PartTally) -> PartTally:
        tasks = sorted(self.by_task.keys() | other.by_task.keys())
        none = Counts()
        return PartTally({t: self.by_task.get(t, none) + other.by_task.get(t, none) for t in tasks})

    @property
    def rows(self) -> int:
        return sum(counts.rows for counts in self.by_task.values())

    @property
    def correct(self) -> int:
        return sum(counts.correct for counts in self.by_task.values())

    @property
    def unparsed(self) -> int:
        return sum(counts.unparsed for counts in self.by_task.values())

    @property
    def truncated(self) -> int:
        return sum(counts.truncated for counts in self.by_task.values())


def score_run(
    run: RunFolder,
    *,
    upstream: bool = True,
    overlap: bool = False,
    audited: bool = False,
    on_progress: Callable[[int, int, PartTally], None] | None = None,
) -> PartTally:
    """Score every part that has no scores of this version yet, and give what was found in them.

    `upstream` adds the verdict of the reference evaluator's rules, `overlap` REL-C2's share of
    the common substructure (slow), `audited` the verdict by audited gold; parts that were scored
    without them are scored again.
    `on_progress` is told parts done, parts to do, and the tally of each part.
    Raises StoreError.
    """
    extras = _extras(upstream, overlap, audited)
    missing = run.unscored_parts(SCORING_VERSION, extras)
    total = PartTally()
    for done, part in enumerate(missing, start=1):
        tally = score_part(run.path, part, upstream=upstream, overlap=overlap, audited=audited)
        total += tally
        if on_progress is not None:
            on_progress(done, len(missing), tally)
    return total


def get_ready(run_path: Path) -> None:
    """Load in this process what it takes to score the run's parts; may be left out."""
    from rel_batch.chem import molecules

    del molecules  # RDKit is loaded now
    run = RunFolder.open(run_path)
    _instances(run_path, run.instances_stamp())


def score_part(
    run_path: Path,
    part: Path,
    *,
    upstream: bool = True,
    overlap: bool = False,
    audited: bool = False,
) -> PartTally:
    """Score one part and publish its scores; may be called in any process.

    A process reads the run's instances once and keeps them. A part that has been merged meanwhile
    has its scores already. Raises StoreError.
    """
    run = RunFolder.open(run_path)
    instances = _instances(run_path, run.instances_stamp())
    counts: dict[str, Counts] = {}

    def rows() -> Iterator[ScoreRow]:
        for completion in run.read_part(part, omit=_NOT_SCORED):
            instance = instances.get(completion.instance_key)
            if instance is None:
                raise StoreError(
                    f"{part} has a row of instance {completion.instance_key}, which "
                    f"{run_path / 'instances.parquet'} does not hold",
                    hint="The part is of another run; move it out of the run folder.",
                )
            row = score_completion(
                instance, completion, upstream=upstream, overlap=overlap, audited=audited
            )
            counts[row.task] = counts.get(row.task, Counts()) + _count(row)
            yield row

    extras = _extras(upstream, overlap, audited)
    try:
        run.publish_scores(SCORING_VERSION, part, rows(), extras=extras)
    except FileGoneError:
        if part.exists():
            raise
        return PartTally()
    return PartTally(counts)


def score_completion(
    instance: Instance,
    completion: Completion,
    *,
    upstream: bool = True,
    overlap: bool = False,
    audited: bool = False,
) -> ScoreRow:
    """The score of one completion. Pure.

    Raises RuntimeError, with the request's key, where a scorer fails: that is a bug.
    """
    try:
        strict = _strict(instance, completion, overlap=overlap)
        reference = mended = None
        if completion.status not in STATUSES_WITHOUT_REPLY:
            reply, finish_reason = completion.reply, completion.finish_reason or "stop"
            if upstream:
                reference = score_reply(instance, reply, finish_reason, scorer="upstream")
            if audited:
                mended = score_reply(instance, reply, _finish_reason(completion), scorer="audited")
    except Exception as error:
        raise RuntimeError(
            f"scoring failed for request {completion.request_key} "
            f"({completion.task}, instance {completion.instance_key}); please report this"
        ) from error
    return ScoreRow(
        request_key=completion.request_key,
        instance_key=completion.instance_key,
        task=completion.task,
        subset=instance.subset,
        arm=completion.arm,
        sample=completion.sample,
        rc=instance.rc,
        status=completion.status,
        verdict=strict.verdict,
        correct=strict.correct,
        parsed=strict.parsed,
        failure=strict.failure,
        precision=strict.precision,
        recall=strict.recall,
        f1=strict.f1,
        prediction=_as_json(strict),
        overlap=strict.overlap,
        upstream_correct=None if reference is None else reference.correct,
        upstream_prediction=None if reference is None else _as_json(reference),
        audited_correct=None if mended is None else mended.correct,
    )


def _strict(instance: Instance, completion: Completion, *, overlap: bool) -> Score:
    if completion.status in STATUSES_WITHOUT_REPLY:
        # What an empty reply gets, so that precision, recall and F1 are 0 where they exist.
        empty = score_reply(instance, "", "stop", scorer="strict")
        return replace(empty, verdict="unparsed", prediction=None, failure=completion.status)
    finish_reason = _finish_reason(completion)
    return score_reply(instance, completion.reply, finish_reason, scorer="strict", overlap=overlap)


def _finish_reason(completion: Completion) -> str:
    truncated = completion.status in ("truncated", "truncated_thinking")
    return "length" if truncated else completion.finish_reason or "stop"


def _as_json(score: Score) -> str | None:
    return None if score.prediction is None else json.dumps(score.prediction)


def _count(row: ScoreRow) -> Counts:
    truncated = row.status in ("truncated", "truncated_thinking")
    finished = not truncated and row.status not in STATUSES_WITHOUT_REPLY
    return Counts(1, int(row.correct), int(finished and not row.parsed), int(truncated))


def _extras(upstream: bool, overlap: bool, audited: bool) -> tuple[str, ...]:
    asked = {"upstream": upstream, "overlap": overlap, "audited": audited}
    return tuple(name for name, wanted in asked.items() if wanted)


@functools.lru_cache(maxsize=1)
def _instances(run_path: Path, stamp: tuple[int, int]) -> Mapping[str, Instance]:
    # They are frozen when a run is created, so a process that scores many parts reads them once.
    del stamp  # part of the cache's key: another run may be created where one was removed
    return {instance.key: instance for instance in RunFolder.open(run_path).read_instances()}
