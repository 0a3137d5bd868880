"""REL-C3: which constitutional isomers are missing from a list?

The question lists some isomers of a formula; the reply gives the others, one `<smiles>…</smiles>`
a line, and is right where the set of its molecules is gold's.

Surprising: gold is incomplete in 467 of the 1,000 instances, so that the true set is scored
incorrect there. `strict` is the comparison with the paper; `score_audited` mends gold.

Decided where the rule leaves room: a reply without tags counts if it is a list of SMILES; a tag may
hold several, separated by commas; a dot joins the parts of one species; a last tag that is open is
a fragment, unless it is the only one and the reply was not cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, cast

from rel_batch.constraints import Constraint, Expression, Kind, separated
from rel_batch.constraints.json_values import JsonValue, json_array, json_object
from rel_batch.overlap import set_overlap
from rel_batch.records import Instance, Score
from rel_batch.tasks import upstream_chemistry
from rel_batch.tasks.audited_gold import with_all_missing
from rel_batch.tasks.molecule_lists import check_listed, check_molecules
from rel_batch.tasks.tags import (
    JSON_SMILES,
    SMILES_KINDS,
    around_smiles,
    bare_smiles,
    find_tags,
    one_smiles,
)
from rel_batch.tasks.task import Complexity, RawRecord, Task

_OPEN_TAG = re.compile(r"<smiles>\s*(?:[^<\s][^<\n]*)?\Z", re.IGNORECASE)
_NEXT_ITEM = re.compile(r"[-*•]|\(?[0-9]{1,4}[.):]?|.{0,10}<.*", re.DOTALL)


@dataclass(frozen=True)
class MissingIsomersTask(Task):
    """Failures: unparsed `no_answer`, `truncated`; incorrect, the first that holds of
    `unparsable_smiles`, `wrong_formula`, `repeats_given`, `extra_molecules`, `truncated` (nothing
    wrong but the list was cut), `missing_molecules`."""

    name: str = "REL-C3"
    title: str = "missing constitutional isomers"
    max_tokens: int = 3_072
    constraint_kinds: tuple[Kind, ...] = SMILES_KINDS

    json_example: ClassVar[str] = '{"smiles":["SMILES","SMILES"]}'
    domain: ClassVar[str] = "chemistry"
    headline: ClassVar[Literal["accuracy", "exact_match"]] = "exact_match"
    has_set_metrics: ClassVar[bool] = True

    def describe(self, record: RawRecord) -> Complexity:
        given = check_listed(record)
        missing = check_molecules("answer.missing_smiles", record.answer.get("missing_smiles"))
        return Complexity(rc=len(missing), num_entities=len(given))

    def constraint(self, instance: Instance, kind: Kind) -> Constraint:
        if kind == "none":
            return Constraint(kind)
        if kind == "json":
            return self.json_shape(instance).constraint(kind)
        if kind == "formula":
            from rel_batch.chem.assisted import missing_isomers

            given = tuple(instance.answer["molecules"])
            return Constraint(kind, missing_isomers(given, "<smiles>", "</smiles>"))
        return around_smiles(kind, _lines)

    def json_shape(self, instance: Instance) -> JsonValue:  # noqa: ARG002
        return json_object(smiles=json_array(JSON_SMILES, 1, MAX_LINES))

    def json_reply(self, instance: Instance) -> dict[str, Any]:
        return {"smiles": list(instance.answer["missing_smiles"])}

    def text_of_json(self, value: Any) -> str | None:
        match value:
            case {"smiles": [*found]} if found and all(isinstance(text, str) for text in found):
                return "\n".join(f"<smiles>{text}</smiles>" for text in cast("list[str]", found))
            case _:
                return None

    def reference_reply(self, instance: Instance) -> str:
        return "\n".join(f"<smiles>{s}</smiles>" for s in instance.answer["missing_smiles"])

    def score(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        from rel_batch.chem.molecules import canonical_forms

        found, went_on = _read_list(answer, truncated=truncated)
        gold = _molecules(tuple(instance.answer["missing_smiles"]))
        if not found:
            none = set_overlap(frozenset[str](), gold)
            return Score("unparsed", None, "truncated" if truncated else "no_answer", *none)
        forms = canonical_forms(found)
        # A string that RDKit refuses stands for itself, as one wrong molecule.
        predicted = list(dict.fromkeys(form or text for text, form in forms.items()))
        refused = any(form is None for form in forms.values())
        failure = _list_failure(instance, predicted, gold, refused=refused, cut=truncated)
        if failure is None and went_on:
            failure = "truncated"
        return Score(
            "incorrect" if failure else "correct",
            predicted,
            failure,
            *set_overlap(frozenset(predicted), gold),
        )

    def score_audited(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        return self.score(with_all_missing(instance), answer, truncated=truncated)

    def score_upstream(self, instance: Instance, reply: str) -> Score:
        return upstream_chemistry.score_missing_isomers(instance, reply)


def _read_list(answer: str, *, truncated: bool) -> tuple[list[str], bool]:
    """The SMILES that the answer lists, and whether it was cut while it went on to another."""
    # After closed tags, one that is open at the end is what a cut has left of the next molecule.
    open_tag = _OPEN_TAG.search(answer) if truncated or "</smiles" in answer.lower() else None
    tags = find_tags("smiles", answer, cut=open_tag is not None)
    if tags:
        pieces = [piece for tag in tags for piece in re.split(r"[,;\n]", tag.value)]
        found = [words[0] for piece in pieces if (words := piece.split())]
        rest = answer[tags[-1].end :].strip("` \n")
        next_item = _NEXT_ITEM.fullmatch(rest) if truncated else open_tag
        return found, next_item is not None
    from rel_batch.chem.molecules import canonical_forms

    found = bare_smiles(answer)
    if truncated and found and answer.rstrip("\"'`").endswith(found[-1]):
        found.pop()
    words = canonical_forms(text for text in found if text.isalpha())
    # "No" looks like SMILES, but RDKit refuses it: then it is a word and not a wrong molecule.
    return [text for text in found if words.get(text, "") is not None], truncated


def _list_failure(
    instance: Instance, predicted: Sequence[str], gold: frozenset[str], *, refused: bool, cut: bool
) -> str | None:
    from rel_batch.chem.molecules import formula

    if refused:
        return "unparsable_smiles"
    wrong = [form for form in predicted if form not in gold]
    if wrong:
        asked = formula(next(iter(gold)))
        if any(formula(form) != asked for form in wrong):
            return "wrong_formula"
        given = _molecules(tuple(instance.answer["molecules"]))
        return "repeats_given" if given.intersection(wrong) else "extra_molecules"
    if len(predicted) == len(gold):
        return None
    return "truncated" if cut else "missing_molecules"


@lru_cache(maxsize=1_024)
def _molecules(smiles: tuple[str, ...]) -> frozenset[str]:
    from rel_batch.chem.molecules import canonical_forms

    return frozenset(form or text for text, form in canonical_forms(smiles).items())


# Of the JSON array; the largest gold has 92.
MAX_LINES = 256


def _lines(smiles: Expression) -> Expression:
    return separated(one_smiles(smiles), "\n", 1, None)


MISSING_ISOMERS_TASK = MissingIsomersTask()
