"""REL-C4: one motif from each molecule, so that a functional group occurs as often as asked.

The reply is `<indices>0,1,…</indices>` and a `<motif_i>…</motif_i>` for each index. Any answer that
satisfies the question is right, not only the stored one.

Decided where the rule leaves room: the last `<indices>` and the motifs after it count; brackets
around the indices and the same as JSON are read; an index without its motif leaves the answer
unparsed; a motif for an index that is not listed is `wrong_indices`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

from rel_batch.constraints import Constraint, Expression, Kind, Nothing, Seq, Text
from rel_batch.constraints.json_values import JsonValue, json_array, json_fixed, json_object
from rel_batch.records import Instance, Score
from rel_batch.tasks import upstream_chemistry
from rel_batch.tasks.molecule_lists import check_listed, check_syntax
from rel_batch.tasks.selections import read_selection
from rel_batch.tasks.tags import JSON_SMILES, SMILES_KINDS, around_smiles
from rel_batch.tasks.task import Complexity, FieldError, RawRecord, Task


@dataclass(frozen=True)
class MotifSelectionTask(Task):
    """Failures: unparsed `no_answer`, `missing_motif`, `truncated`; incorrect, the first that
    holds of `wrong_indices`, `two_motifs` (for one molecule), `unparsable_smiles`, `disconnected`,
    `too_small`, `not_a_substructure`, `undecided_substructure` (the search was given up: see
    `chem.substructures`), `wrong_total`."""

    name: str = "REL-C4"
    title: str = "one motif from each molecule"
    max_tokens: int = 4_096
    constraint_kinds: tuple[Kind, ...] = SMILES_KINDS

    json_example: ClassVar[str] = '{"indices":[0,1],"motifs":["SMILES","SMILES"]}'
    domain: ClassVar[str] = "chemistry"
    headline: ClassVar[Literal["accuracy", "exact_match"]] = "exact_match"
    has_set_metrics: ClassVar[bool] = False

    def describe(self, record: RawRecord) -> Complexity:
        from rel_batch.chem.groups import CONSTRAINT_TYPES

        molecules = check_listed(record)
        counted = record.metadata.get("constraint_type")
        if counted not in CONSTRAINT_TYPES:
            known = ", ".join(sorted(CONSTRAINT_TYPES))
            raise FieldError(
                "metadata.constraint_type", f"expected one of {known}, found {counted!r:.80}"
            )
        _check_number(record, "target_value", 0, rf"\b{counted}\b[^\n]*?(?:=|equals) ([0-9]+)\b")
        _check_number(record, "min_motif_atoms", 1, r"\bat least ([0-9]+) heavy atoms")
        motifs: Any = record.answer.get("selected_motifs")
        indices = [str(index) for index in range(len(molecules))]
        if not isinstance(motifs, Mapping) or {*motifs} != {*indices}:
            expected = f'expected an object with the keys "0" to "{indices[-1]}"'
            raise FieldError("answer.selected_motifs", expected)
        check_syntax("answer.selected_motifs", [motifs[index] for index in indices])
        return Complexity(rc=len(molecules), num_entities=len(molecules))

    def constraint(self, instance: Instance, kind: Kind) -> Constraint:
        if kind == "none":
            return Constraint(kind)
        if kind == "json":
            return self.json_shape(instance).constraint(kind)
        molecules = instance.answer["molecules"]
        if kind == "formula":
            return _one_substructure_each(tuple(molecules), instance.metadata["min_motif_atoms"])
        count = len(molecules)
        return around_smiles(kind, lambda smiles: _envelope([smiles] * count))

    def json_shape(self, instance: Instance) -> JsonValue:
        count = len(instance.answer["molecules"])
        return json_object(
            indices=json_fixed(list(range(count))), motifs=json_array(JSON_SMILES, count, count)
        )

    def json_reply(self, instance: Instance) -> dict[str, Any]:
        motifs = instance.answer["selected_motifs"]
        indices = list(range(len(instance.answer["molecules"])))
        return {"indices": indices, "motifs": [motifs[str(index)] for index in indices]}

    def text_of_json(self, value: Any) -> str | None:
        match value:
            case {"indices": [*indices], "motifs": [*motifs]} if len(indices) == len(motifs):
                pairs = zip(indices, motifs, strict=True)
                lines = [f"<motif_{index}>{motif}</motif_{index}>" for index, motif in pairs]
                return "\n".join((f"<indices>{','.join(map(str, indices))}</indices>", *lines))
            case _:
                return None

    def reference_reply(self, instance: Instance) -> str:
        motifs = instance.answer["selected_motifs"]
        indices = range(len(instance.answer["molecules"]))
        lines = [f"<motif_{i}>{motifs[str(i)]}</motif_{i}>" for i in indices]
        return "\n".join((f"<indices>{','.join(map(str, indices))}</indices>", *lines))

    def score(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        selection = read_selection(answer, cut=truncated)
        if isinstance(selection, str):
            return Score("unparsed", failure="truncated" if truncated else selection)
        failure = selection.failure(
            instance.answer["molecules"],
            instance.metadata["min_motif_atoms"],
            instance.metadata["constraint_type"],
            instance.metadata["target_value"],
        )
        prediction = {
            "indices": list(selection.indices),
            "motifs": {str(index): motif for index, motif in selection.motifs},
        }
        return Score("incorrect" if failure else "correct", prediction, failure)

    def score_upstream(self, instance: Instance, reply: str) -> Score:
        return upstream_chemistry.score_motif_selection(instance, reply)


def _check_number(record: RawRecord, name: str, least: int, stated: str) -> None:
    value = record.metadata.get(name)
    if type(value) is not int or value < least:
        raise FieldError(f"metadata.{name}", f"expected an integer >= {least}, found {value!r:.80}")
    asked = {int(number) for number in re.findall(stated, record.question)}
    if asked != {value}:
        raise FieldError(f"metadata.{name}", f"{value}, but the question says {sorted(asked)}")


@lru_cache(maxsize=128)
def _one_substructure_each(molecules: tuple[str, ...], min_atoms: int) -> Constraint:
    from rel_batch.chem.assisted import substructure_of

    motifs = [substructure_of(molecule, min_atoms) for molecule in molecules]
    without = next((motif for motif in motifs if isinstance(motif, Nothing)), None)
    return Constraint("formula", without or _envelope(motifs))


def _envelope(motifs: Sequence[Expression]) -> Expression:
    """A reply with one motif for each molecule."""
    parts: list[Expression] = [Text(f"<indices>{','.join(map(str, range(len(motifs))))}</indices>")]
    for index, motif in enumerate(motifs):
        parts += [Text(f"\n<motif_{index}>"), motif, Text(f"</motif_{index}>")]
    return Seq(tuple(parts))


MOTIF_SELECTION_TASK = MotifSelectionTask()
