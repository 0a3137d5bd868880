"""REL-A1 to REL-A4: complete a Raven's progressive matrix; the reply is the index of a choice.

A 3 x 3 question shows 8 panels and 8 choices; RC is 2 for the rules that relate one panel to the
next (constant, progression) and n, the width of the matrix, for those that bind a whole row
(permutation, row sum).

Surprising: the newer format labels the choices 0-7 and the older one 1-8, so the base is read from
the printed labels. `target` is 0-based in both, and so is the prediction of a score.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Any, ClassVar, Literal

from rel_batch.constraints import Constraint, Kind, texts
from rel_batch.constraints.json_values import JsonValue, json_integer, json_object
from rel_batch.records import Instance, Score
from rel_batch.tasks.choices import numbers_in, read_choice
from rel_batch.tasks.task import Complexity, FieldError, RawRecord, Task

NUM_CHOICES = 8

_LABEL = re.compile(r"^Answer ([0-9]{1,9}):", re.MULTILINE)
_ROW = re.compile(r"row [0-9]{1,9}:([^;\n]*)")
_CELL = re.compile(r"\([^()]*\)")
_PANEL = re.compile(r"^Panel [0-9]{1,9}:", re.MULTILINE)
_ASKED = re.compile(r"index \(([0-9]{1,9})-([0-9]{1,9})\)")


@dataclass(frozen=True, slots=True)
class _Question:
    """What is printed: the first label, each choice's numbers, and the number of panels shown."""

    base: int
    choices: Sequence[tuple[float, ...]]
    num_panels: int
    cells_in_rows: bool


# The scorers of one row, and the arms of one instance, ask for the same question one after another.
@lru_cache(maxsize=256)
def _read_question(question: str) -> _Question:
    """Raises FieldError where the question is not in the released format."""
    shown, found, printed = question.partition("Answer set:")
    if not found:
        raise FieldError("question", 'there is no "Answer set:"')
    labels = [int(label) for label in _LABEL.findall(printed)]
    base = labels[0] if labels else 0
    if base not in (0, 1) or labels != list(range(base, base + NUM_CHOICES)):
        raise FieldError(
            "question", f'expected the labels "Answer 0:" to 7 or 1 to 8, found {labels[:12]}'
        )
    asked = _ASKED.search(shown)
    if asked and (int(asked[1]), int(asked[2])) != (base, base + NUM_CHOICES - 1):
        raise FieldError(
            "question", f"asks for an index {asked[1]}-{asked[2]} but labels choices from {base}"
        )
    rows = _ROW.findall(shown)
    num_panels = sum(len(_CELL.findall(row)) for row in rows) or len(_PANEL.findall(shown))
    choices = [numbers_in(choice) for choice in _LABEL.split(printed)[2::2]]
    return _Question(base, choices, num_panels, bool(rows))


@dataclass(frozen=True)
class AlgebraTask(Task):
    """One rule. Failures: unparsed `no_choice`, `undecided`, `out_of_range`, `truncated`;
    incorrect `wrong_choice`."""

    name: str
    title: str
    binds_whole_rows: bool
    max_tokens: int = 32
    constraint_kinds: tuple[Kind, ...] = ("none", "format", "json", "regex")

    json_example: ClassVar[str] = '{"answer":0}'
    domain: ClassVar[str] = "algebra"
    headline: ClassVar[Literal["accuracy", "exact_match"]] = "accuracy"
    has_set_metrics: ClassVar[bool] = False

    def describe(self, record: RawRecord) -> Complexity:
        target = record.answer.get("target")
        if type(target) is not int or not 0 <= target < NUM_CHOICES:
            raise FieldError(
                "answer.target", f"expected an integer 0-{NUM_CHOICES - 1}, found {target!r:.80}"
            )
        question = _read_question(record.question)
        width = isqrt(question.num_panels + 1)
        if width < 2 or width * width != question.num_panels + 1:
            raise FieldError(
                "question",
                f"expected the panels of a square matrix less one, found {question.num_panels}",
            )
        return Complexity(
            rc=width if self.binds_whole_rows else 2,
            num_entities=question.num_panels,
            variant=f"{width}x{width}" if question.cells_in_rows else "v1",
        )

    def constraint(self, instance: Instance, kind: Kind) -> Constraint:
        if kind == "none":
            return Constraint("none")
        if kind == "json":
            return self.json_shape(instance).constraint(kind)
        if kind in ("format", "regex"):
            base = _read_question(instance.question).base
            return Constraint(kind, texts(tuple(str(base + i) for i in range(NUM_CHOICES))))
        raise ValueError(f"{self.name} has no constraint {kind!r}")

    def reference_reply(self, instance: Instance) -> str:
        return str(_read_question(instance.question).base + instance.answer["target"])

    def json_shape(self, instance: Instance) -> JsonValue:
        base = _read_question(instance.question).base
        return json_object(answer=json_integer(base, base + NUM_CHOICES - 1))

    def json_reply(self, instance: Instance) -> dict[str, int]:
        return {"answer": int(self.reference_reply(instance))}

    def text_of_json(self, value: Any) -> str | None:
        match value:
            case {"answer": int(label)} if not isinstance(label, bool):
                return str(label)
            case _:
                return None

    def score(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        question = _read_question(instance.question)
        read = read_choice(answer, question.base, question.choices, truncated=truncated)
        if isinstance(read, str):
            return Score("unparsed", failure=read)
        return _verdict(read, instance)

    def score_upstream(self, instance: Instance, reply: str) -> Score:
        """The first "Answer N", else the first digit that is a label and stands alone, else choice
        0 (so nothing is ever unparsed). Where labels start at 0, 8 is read as an old label."""
        base = _read_question(instance.question).base
        named = re.search(r"\banswer\s+([0-9]{1,9})", reply, re.IGNORECASE)
        bare = re.search(rf"\b([{base}-{base + NUM_CHOICES - 1}])\b", reply)
        match = named or bare
        index = int(match[1]) - base if match else 0
        if index == NUM_CHOICES and base == 0:
            index = NUM_CHOICES - 1
        return _verdict(index if 0 <= index < NUM_CHOICES else 0, instance)


def _verdict(index: int, instance: Instance) -> Score:
    if index == instance.answer["target"]:
        return Score("correct", prediction=index)
    return Score("incorrect", prediction=index, failure="wrong_choice")


ALGEBRA_TASKS = (
    AlgebraTask("REL-A1", "constant rule in a matrix of panels", binds_whole_rows=False),
    AlgebraTask("REL-A2", "progression rule in a matrix of panels", binds_whole_rows=False),
    AlgebraTask("REL-A3", "permutation rule in a matrix of panels", binds_whole_rows=True),
    AlgebraTask("REL-A4", "row-sum rule in a matrix of panels", binds_whole_rows=True),
)
