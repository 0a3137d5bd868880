"""REL-C2: the largest connected substructure that all molecules of a list have in common.

The reply is one `<smiles>…</smiles>`, and right where its molecule is gold's.

Surprising: some 100 golds have another motif of the same size. `strict` scores that one incorrect,
as the paper does; `score_audited` takes it.

Decided where the rule leaves room: a reply without tags counts if exactly one SMILES stands where
an answer stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rel_batch.constraints import Constraint, Kind, Nothing
from rel_batch.constraints.json_values import JsonValue, json_object
from rel_batch.records import Instance, Score
from rel_batch.tasks import upstream_chemistry
from rel_batch.tasks.audited_gold import with_every_motif
from rel_batch.tasks.molecule_lists import check_listed
from rel_batch.tasks.tags import (
    JSON_SMILES,
    SMILES_KINDS,
    around_smiles,
    bare_smiles,
    decide,
    find_tags,
    one_smiles,
)
from rel_batch.tasks.task import Complexity, FieldError, RawRecord, Task


@dataclass(frozen=True)
class CommonMotifTask(Task):
    """Failures: unparsed `no_answer`, `contradictory`, `truncated`; incorrect
    `unparsable_smiles`, `disconnected`, `wrong_molecule`."""

    name: str = "REL-C2"
    title: str = "largest common motif"
    max_tokens: int = 256
    constraint_kinds: tuple[Kind, ...] = SMILES_KINDS

    json_example: ClassVar[str] = '{"smiles":"SMILES"}'
    domain: ClassVar[str] = "chemistry"
    headline: ClassVar[Literal["accuracy", "exact_match"]] = "exact_match"
    has_set_metrics: ClassVar[bool] = False

    def describe(self, record: RawRecord) -> Complexity:
        from rel_batch.chem.molecules import canonical_form

        molecules = check_listed(record)
        gold = record.answer.get("smiles")
        if not isinstance(gold, str) or canonical_form(gold) is None:
            raise FieldError("answer.smiles", f"expected a SMILES, found {gold!r:.100}")
        return Complexity(rc=2, num_entities=len(molecules))

    def constraint(self, instance: Instance, kind: Kind) -> Constraint:
        if kind == "none":
            return Constraint(kind)
        if kind == "json":
            return self.json_shape(instance).constraint(kind)
        if kind == "formula":
            from rel_batch.chem.assisted import substructure_of

            motif = substructure_of(instance.answer["molecules"][0], 1)
            return Constraint(kind, motif if isinstance(motif, Nothing) else one_smiles(motif))
        return around_smiles(kind, one_smiles)

    def json_shape(self, instance: Instance) -> JsonValue:  # noqa: ARG002
        return json_object(smiles=JSON_SMILES)

    def json_reply(self, instance: Instance) -> dict[str, str]:
        return {"smiles": instance.answer["smiles"]}

    def text_of_json(self, value: Any) -> str | None:
        match value:
            case {"smiles": str(text)}:
                return f"<smiles>{text}</smiles>"
            case _:
                return None

    def reference_reply(self, instance: Instance) -> str:
        return f"<smiles>{instance.answer['smiles']}</smiles>"

    def score(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        from rel_batch.chem.molecules import canonical_form

        read = _read_smiles(answer, truncated=truncated)
        if isinstance(read, str):
            return Score("unparsed", failure=read)
        (smiles,) = read
        form = canonical_form(smiles)
        if form is None:
            return Score("incorrect", smiles, "unparsable_smiles")
        if form == canonical_form(instance.answer["smiles"]):
            return Score("correct", form)
        return Score("incorrect", form, "disconnected" if "." in form else "wrong_molecule")

    def score_audited(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        return with_every_motif(instance, self.score(instance, answer, truncated=truncated))

    def score_upstream(self, instance: Instance, reply: str) -> Score:
        return upstream_chemistry.score_common_motif(instance, reply)

    def overlap(self, instance: Instance, score: Score) -> float | None:
        """Heavy atoms of the largest substructure that the answer shares with gold, over those of
        the larger of the two; 0 for a SMILES that RDKit refuses; None where unparsed, or where an
        answer has too many rings to be compared. At most some 5 s."""
        from rel_batch.chem.molecules import canonical_form
        from rel_batch.chem.substructures import shared_fraction

        if score.prediction is None:
            return None
        if canonical_form(score.prediction) is None:
            return 0.0
        return shared_fraction(score.prediction, instance.answer["smiles"])


def _read_smiles(answer: str, *, truncated: bool) -> tuple[str] | str:
    """The one SMILES that the answer gives, or why there is none."""
    from rel_batch.chem.molecules import canonical_forms

    tags = find_tags("smiles", answer, cut=truncated)
    if tags:
        forms = canonical_forms(tag.value for tag in tags) if len(tags) > 1 else {}
        stated = decide(answer, tags, lambda text: forms.get(text) or text, cut=truncated)
        if stated:
            # As in a file of SMILES, what follows after a space is a name.
            return (stated.value.split()[0],)
    if truncated:
        return "truncated"
    bare = canonical_forms(() if tags else (t for t in bare_smiles(answer) if len(t) > 1))
    molecules = {form for form in bare.values() if form}
    if len(molecules) == 1:
        return (molecules.pop(),)
    return "contradictory" if tags or molecules else "no_answer"


COMMON_MOTIF_TASK = CommonMotifTask()
