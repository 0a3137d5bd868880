"""REL-C1: are all molecules of a list constitutional isomers?

The reply is `<Yes>` or `<No>`, and right where it is gold's label.

Decided where the rule leaves room: Yes or No without angle brackets counts where it starts the
reply, is alone on its line or follows "answer" (boxed, JSON, another tag); a sentence that only
implies it ("these are isomers") does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rel_batch.constraints import Constraint, Kind, texts
from rel_batch.constraints.json_values import JsonValue, json_enum, json_object
from rel_batch.records import Instance, Score
from rel_batch.tasks import upstream_chemistry
from rel_batch.tasks.molecule_lists import check_listed
from rel_batch.tasks.tags import Tag, decide
from rel_batch.tasks.task import Complexity, FieldError, RawRecord, Task

_LABELS = texts(("<Yes>", "<No>"))

_LABEL_TAG = re.compile(r"<\s*(yes|no)\s*(?:/\s*)?>(?:\s*<\s*/\s*\1\s*>)?", re.IGNORECASE)
_BARE_LABELS = (
    re.compile(r"\A[\W_]{0,20}(yes|no)\s*(?:[.,;:!)*—–]|$)", re.IGNORECASE),
    re.compile(r"^[\W_]{0,20}(yes|no)[\W_]{0,20}$", re.IGNORECASE | re.MULTILINE),
    re.compile(
        r"\b(?:answer|label|verdict|conclusion|result|response|boxed)\b"
        r"(?:[^\w.\n]|_|\b(?:is|text|mathrm)\b){0,20}\b(yes|no)\b",
        re.IGNORECASE,
    ),
)


@dataclass(frozen=True)
class IsomerSetTask(Task):
    """Failures: unparsed `no_answer`, `contradictory`, `truncated`; incorrect `wrong_label`."""

    name: str = "REL-C1"
    title: str = "constitutional isomers?"
    max_tokens: int = 32
    constraint_kinds: tuple[Kind, ...] = ("none", "format", "json", "regex")

    json_example: ClassVar[str] = '{"answer":"Yes"}'
    domain: ClassVar[str] = "chemistry"
    headline: ClassVar[Literal["accuracy", "exact_match"]] = "exact_match"
    has_set_metrics: ClassVar[bool] = False

    def describe(self, record: RawRecord) -> Complexity:
        molecules = check_listed(record)
        label = record.answer.get("label")
        if label not in ("Yes", "No"):
            raise FieldError("answer.label", f'expected "Yes" or "No", found {label!r:.80}')
        return Complexity(rc=2, num_entities=len(molecules))

    def constraint(self, instance: Instance, kind: Kind) -> Constraint:
        match kind:
            case "none":
                return Constraint(kind)
            case "format" | "regex":
                return Constraint(kind, _LABELS)
            case "json":
                return self.json_shape(instance).constraint(kind)
            case _:
                raise ValueError(f"{self.name} has no constraint {kind!r}")

    def reference_reply(self, instance: Instance) -> str:
        return f"<{instance.answer['label']}>"

    def json_shape(self, instance: Instance) -> JsonValue:  # noqa: ARG002
        return json_object(answer=json_enum("Yes", "No"))

    def json_reply(self, instance: Instance) -> dict[str, str]:
        return {"answer": instance.answer["label"]}

    def text_of_json(self, value: Any) -> str | None:
        match value:
            case {"answer": "Yes" | "No" as label}:
                return f"<{label}>"
            case _:
                return None

    def score(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        label = _read_label(answer, truncated=truncated)
        if label in ("Yes", "No"):
            wrong = None if label == instance.answer["label"] else "wrong_label"
            return Score("incorrect" if wrong else "correct", prediction=label, failure=wrong)
        return Score("unparsed", failure="truncated" if truncated else label)

    def score_upstream(self, instance: Instance, reply: str) -> Score:
        return upstream_chemistry.score_isomer_set(instance, reply)


def _read_label(answer: str, *, truncated: bool) -> str:
    """The label, Yes or No, or why there is none."""
    tags = [Tag(m[1].capitalize(), m.start(), m.end()) for m in _LABEL_TAG.finditer(answer)]
    if tags:
        stated = decide(answer, tags, lambda value: value, cut=truncated)
        return stated.value if stated else "contradictory"
    bare = [match for pattern in _BARE_LABELS for match in pattern.finditer(answer)]
    # A cut "No" may have been on the way to "None" or "Not".
    labels = {m[1].capitalize() for m in bare if not (truncated and m.end(1) == len(answer))}
    if len(labels) == 1:
        return labels.pop()
    return "contradictory" if labels else "no_answer"


ISOMER_SET_TASK = IsomerSetTask()
