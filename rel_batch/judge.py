"""The public verdict on one reply, and the constraint that holds a reply to its format.

    >>> from rel_batch import constraint_for, read_instances, score_reply
    >>> instance = read_instances("bundled", tasks=["REL-C1"])[0]
    >>> score_reply(instance, "").verdict, constraint_for(instance).matches("<Yes>")
    ('unparsed', True)

A law: `score_reply` gives a verdict for any text and raises only for a record or an argument that
is not what it has to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rel_batch.constraints import KINDS, Constraint, Kind
from rel_batch.errors import ConfigError, unknown_name
from rel_batch.instances import instance_of
from rel_batch.records import Instance, Score
from rel_batch.tasks import task_for
from rel_batch.tasks.answer import answer_of

SCORERS = ("strict", "upstream", "audited")


def score_reply(
    record: Mapping[str, Any] | Instance,
    reply: str,
    finish_reason: str | None = "stop",
    scorer: str = "strict",
    overlap: bool = False,
) -> Score:
    """The verdict on `reply` as an answer to `record`.

    Args:
        record: a REL record in the unified format (REL-B1's taxa are names), or an Instance.
        reply: all that the model wrote; its thought, if any, is no part of the answer.
        finish_reason: "length" says that the reply was cut by the token limit: then only an answer
            that was complete before the cut counts.
        scorer: "strict", or "upstream" for the verdict that the reference evaluator's rules give,
            or "audited" to compare with gold without its known faults (`tasks/audited_gold.py`).
        overlap: also compute REL-C2's share of the common substructure, which is slow.

    Raises DataError (the record) and ConfigError (an unknown scorer).
    """
    if scorer not in SCORERS:
        raise ConfigError(unknown_name("scorer", scorer, SCORERS))
    instance = record if isinstance(record, Instance) else instance_of(record)
    task = task_for(instance.task)
    if scorer == "upstream":
        return task.score_upstream(instance, reply)
    answer, truncated = task.read_answer(answer_of(reply), truncated=finish_reason == "length")
    judge = task.score_audited if scorer == "audited" else task.score
    score = judge(instance, answer, truncated=truncated)
    return replace(score, overlap=task.overlap(instance, score)) if overlap else score


def constraint_for(record: Mapping[str, Any] | Instance, kind: Kind = "format") -> Constraint:
    """What a whole reply to `record` may be, at one rung of the ladder.

    Raises DataError (the record) and ConfigError (a kind that is unknown, or not of this task).
    """
    instance = record if isinstance(record, Instance) else instance_of(record)
    task = task_for(instance.task)
    if kind not in KINDS:
        raise ConfigError(unknown_name("constraint", kind, KINDS))
    if kind not in task.constraint_kinds:
        raise ConfigError(f"{task.name} has no constraint {kind!r}: only {task.constraint_kinds}")
    return task.constraint(instance, kind)
