"""REL-B1: is there homoplasy in an alignment, and between which taxa?

The reply is `No`, or `Yes: 18, 28` with the names of the taxa; it is right where the label is and
the names are exactly gold's set. RC is the number of homoplastic taxa, 0 for a No instance.

Surprising: the names are whatever stands after ">" in the alignment of the question, so they may
look like anything; the tree may be absent, and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

from rel_batch.constraints import Constraint, Kind, OneOf, Seq, Subset, Text, separated, texts
from rel_batch.constraints.json_values import (
    JsonValue,
    json_array,
    json_either,
    json_enum,
    json_object,
    json_subset,
)
from rel_batch.overlap import Overlap, set_overlap
from rel_batch.records import Instance, Score
from rel_batch.tasks.alignment import taxa_names
from rel_batch.tasks.task import Complexity, FieldError, RawRecord, Task
from rel_batch.tasks.taxa import TaxaReading, read_taxa

_NO_OVERLAP = Overlap(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class HomoplasyTask(Task):
    """Failures: unparsed `no_label`, `truncated`; incorrect `wrong_label`, `missing_taxa`,
    `extra_taxa`, `wrong_taxa` (missing and extra), `unknown_taxa` (a name that is not in the
    alignment), `truncated` (the list may have been cut)."""

    name: str = "REL-B1"
    title: str = "homoplasy in an alignment"
    max_tokens: int = 256
    constraint_kinds: tuple[Kind, ...] = (
        *("none", "format", "json", "regex"),
        *("set", "ascending", "json_set", "json_ascending"),
    )

    json_example: ClassVar[str] = '{"homoplasy":true,"taxa":["NAME","NAME"]}'
    domain: ClassVar[str] = "biology"
    headline: ClassVar[Literal["accuracy", "exact_match"]] = "exact_match"
    has_set_metrics: ClassVar[bool] = True

    def describe(self, record: RawRecord) -> Complexity:
        label, taxa = record.answer.get("label"), record.answer.get("taxa")
        if label not in ("yes", "no"):
            raise FieldError("answer.label", f'expected "yes" or "no", found {label!r:.80}')
        if not isinstance(taxa, list | tuple):
            raise FieldError("answer.taxa", f"expected an array of names, found {taxa!r:.80}")
        names = taxa_names(record.question)
        gold = list(cast(Sequence[object], taxa))
        for taxon in gold:
            if taxon not in names:
                raise FieldError("answer.taxa", f"{taxon!r:.80} is no name of the alignment")
        if len(set(gold)) != len(gold):
            raise FieldError("answer.taxa", "a taxon is repeated")
        if bool(gold) != (label == "yes"):
            raise FieldError(
                "answer.taxa", f"the label is {label!r} but there are {len(gold)} taxa"
            )
        return Complexity(rc=len(gold), num_entities=len(names))

    def constraint(self, instance: Instance, kind: Kind) -> Constraint:
        if kind == "none":
            return Constraint("none")
        names = tuple(taxa_names(instance.question))
        if kind not in ("ascending", "json_ascending"):
            names = _sorted(names)
        if kind in ("format", "regex"):
            listed = separated(texts(names), ", ", 1, len(names))
        elif kind in ("set", "ascending"):
            listed = Subset(names, ", ", "any" if kind == "set" else "ascending")
        elif kind == "json":
            return self.json_shape(instance).constraint(kind)
        elif kind in ("json_set", "json_ascending"):
            order = "any" if kind == "json_set" else "ascending"
            return _json_shape(names, json_subset(names, order)).constraint(kind)
        else:
            raise ValueError(f"{self.name} has no constraint {kind!r}")
        return Constraint(kind, OneOf((Text("No"), Seq((Text("Yes: "), listed)))))

    def json_shape(self, instance: Instance) -> JsonValue:
        names = _sorted(taxa_names(instance.question))
        return _json_shape(names, json_array(json_enum(*names), 1, len(names)))

    def json_reply(self, instance: Instance) -> dict[str, Any]:
        taxa = list(instance.answer["taxa"])
        return {"homoplasy": bool(taxa), "taxa": taxa}

    def text_of_json(self, value: Any) -> str | None:
        match value:
            case {"homoplasy": False, "taxa": []}:
                return "No"
            case {"homoplasy": True, "taxa": [*taxa]} if taxa and all(
                isinstance(taxon, str) for taxon in taxa
            ):
                return "Yes: " + ", ".join(taxa)
            case _:
                return None

    def reference_reply_for(self, instance: Instance, kind: Kind) -> str:
        if kind not in ("ascending", "json_ascending"):
            return super().reference_reply_for(instance, kind)
        place = {name: i for i, name in enumerate(taxa_names(instance.question))}
        taxa = sorted(instance.answer["taxa"], key=place.__getitem__)
        ordered = replace(instance, answer={**instance.answer, "taxa": taxa})
        return super().reference_reply_for(ordered, kind)

    def reference_reply(self, instance: Instance) -> str:
        if instance.answer["label"] == "no":
            return "No"
        return "Yes: " + ", ".join(instance.answer["taxa"])

    def score(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        gold = frozenset[str](instance.answer["taxa"])
        read = read_taxa(answer, frozenset(taxa_names(instance.question)))
        if read.label is None or (truncated and not read.label_over):
            overlap = _NO_OVERLAP if gold else None
            return _score(None, "truncated" if truncated else "no_label", overlap)
        listed = read.taxa | read.unknown
        is_cut = truncated and read.label == "yes" and not read.list_over
        if is_cut and read.touching is not None:
            listed -= {read.touching}
        says_yes = read.label == "yes"
        overlap = set_overlap(listed if says_yes else frozenset[str](), gold) if gold else None
        prediction = {"label": read.label, "taxa": sorted(listed)}
        return _score(prediction, _failure(read, listed, gold, is_cut=is_cut), overlap)

    def score_upstream(self, instance: Instance, reply: str) -> Score:
        """Their label is "yes" or "no" where exactly one of them occurs anywhere in the reply, in
        other words too; their taxa are all runs of digits. No is right where there are none of
        these, Yes where any is in gold."""
        lowered = reply.lower()
        says_yes, says_no = "yes" in lowered, "no" in lowered
        label = None if says_yes == says_no else ("yes" if says_yes else "no")
        taxa = {number.lstrip("0") or "0" for number in re.findall("[0-9]+", reply)}
        gold = frozenset[str](instance.answer["taxa"])
        prediction = {"label": label, "taxa": sorted(taxa)}
        right = bool(taxa & gold) if gold else not taxa
        failure = (
            None
            if label == instance.answer["label"] and right
            else ("wrong_taxa" if label == instance.answer["label"] else "wrong_label")
        )
        return _score(prediction, failure, set_overlap(taxa, gold) if gold else None)


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    """Names in an order of their own, so that equal sets of taxa have one constraint."""
    return tuple(sorted(names, key=lambda name: (len(name), name)))


def _json_shape(names: tuple[str, ...], listed: JsonValue) -> JsonValue:
    none = json_array(json_enum(names[0]), 0, 0)
    return json_either(
        json_object(homoplasy=json_enum(False), taxa=none),
        json_object(homoplasy=json_enum(True), taxa=listed),
    )


def _failure(
    read: TaxaReading, listed: frozenset[str], gold: frozenset[str], *, is_cut: bool
) -> str | None:
    if (read.label == "yes") != bool(gold):
        return "wrong_label"
    if is_cut:
        return "truncated"
    if listed == gold:
        return None
    if read.unknown:
        return "unknown_taxa"
    if listed < gold:
        return "missing_taxa"
    return "extra_taxa" if listed > gold else "wrong_taxa"


def _score(prediction: object, failure: str | None, overlap: Sequence[float] | None) -> Score:
    verdict: Literal["correct", "incorrect", "unparsed"] = "incorrect" if failure else "correct"
    if prediction is None:
        verdict = "unparsed"
    precision, recall, f1 = overlap or (None, None, None)
    return Score(verdict, prediction, failure, precision, recall, f1)


HOMOPLASY_TASK = HomoplasyTask()
