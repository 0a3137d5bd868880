"""The contract of a REL task: prompt, constraint, parser, score and reference reply.

One file per task subclasses `Task`; nothing else in the package knows a task by name.
A task is pure: it reads no files, knows no engine, keeps no state, and its `score` gives a
verdict for any text and never raises.

Surprising: `score` is given the *answer*, which is the reply without its thought (`answer.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rel_batch.constraints import JSON_KINDS, Constraint, Kind
from rel_batch.constraints.json_values import JsonValue, parse_json, render_json
from rel_batch.records import Instance, Score

_JSON_INSTRUCTION = "Give the answer as JSON, without white space, in exactly this form:"


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A REL record as released, with its shape checked but its content not yet.

    `question` is a non-empty string, `answer` and `metadata` are JSON objects.
    """

    id: str
    task: str
    question: str
    answer: Mapping[str, Any]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Complexity:
    """What a question asks of its reader.

    Attributes:
        rc: relational complexity.
        num_entities: panels, sequences or molecules that the question shows.
        variant: what tells records of one task apart when their file's name does not
            ("3x3", "v1"), or "all".
    """

    rc: int
    num_entities: int
    variant: str = "all"


class FieldError(ValueError):
    """A field of a record is not what the task needs; `field` is its dotted path."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Task(ABC):
    """One of the nine REL tasks."""

    name: str
    title: str
    domain: ClassVar[str]
    # What a share of correct replies is called: accuracy for a choice, exact match for the rest.
    headline: ClassVar[Literal["accuracy", "exact_match"]]
    # Whether precision, recall and F1 exist for the task.
    has_set_metrics: ClassVar[bool]
    # The kinds that mean something for the task, in the order of the ladder.
    constraint_kinds: tuple[Kind, ...] = ("none", "format")
    # A reply in JSON, as the prompt shows it.
    json_example: ClassVar[str]
    # Default bound on the reply, in tokens: about twice what the longest gold reply needs.
    max_tokens: int

    @abstractmethod
    def describe(self, record: RawRecord) -> Complexity:
        """Check the record's content and give its complexity.

        For REL-B1 `answer["taxa"]` holds names by now. Raises FieldError.
        """

    @abstractmethod
    def constraint(self, instance: Instance, kind: Kind) -> Constraint:
        """The constraint of `kind` for this instance. Raises ValueError for a kind not in
        `constraint_kinds`."""

    @abstractmethod
    def reference_reply(self, instance: Instance) -> str:
        """A correct reply, as the paper's prompt asks for it; its `format` constraint admits it."""

    @abstractmethod
    def json_shape(self, instance: Instance) -> JsonValue:
        """What a reply may be in JSON: the same content as the paper's text."""

    @abstractmethod
    def json_reply(self, instance: Instance) -> Any:
        """The reference reply as a value of `json_shape`."""

    @abstractmethod
    def text_of_json(self, value: Any) -> str | None:
        """The paper's text of a JSON value that has the shape; None for any other value."""

    def reference_reply_for(self, instance: Instance, kind: Kind) -> str:
        """A correct reply that the constraint of `kind` admits."""
        if kind in JSON_KINDS:
            return render_json(self.json_reply(instance))
        return self.reference_reply(instance)

    def instruction(self, kind: Kind) -> str:
        """What is added to the paper's prompt so that the model knows of `kind`; "" for most."""
        return f"\n\n{_JSON_INSTRUCTION} {self.json_example}" if kind in JSON_KINDS else ""

    def read_answer(self, answer: str, *, truncated: bool) -> tuple[str, bool]:
        """`answer` with a reply in JSON put into the paper's words, and whether it may be cut.

        A model that is asked for JSON and not held to it may put it into a fence, or after a
        sentence: an object of the task's own shape that ends the answer is the answer. One that is
        closed was complete before the cut.
        """
        start, end = answer.find("{"), answer.rfind("}")
        if 0 <= start < end and not answer[end + 1 :].strip("` \n"):
            value = parse_json(answer[start : end + 1])
            text = None if value is None else self.text_of_json(value)
            if text is not None:
                return text, False
        return answer, truncated

    @abstractmethod
    def score(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        """The strict verdict on an answer. Total and pure.

        `truncated` says that the reply was cut by the token limit: then only what was complete
        before the cut counts.
        """

    def score_audited(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        """The verdict on an answer by gold without its known faults (`audited_gold.py`).

        As `score`, but may be slow the first time that an instance is met.
        """
        return self.score(instance, answer, truncated=truncated)

    @abstractmethod
    def score_upstream(self, instance: Instance, reply: str) -> Score:
        """The verdict that the reference evaluator's rules give on the whole reply."""

    def overlap(self, instance: Instance, score: Score) -> float | None:  # noqa: ARG002
        """How much a scored reply shares with gold, in [0, 1], where that is slow to say.

        Asked for by name only (REL-C2's share of the common substructure); None elsewhere.
        """
        return None
