"""The reference evaluator's rules for REL-C1 to REL-C4, in our own words.

Reported beside our verdicts and never in their place. What they do otherwise than ours: the first
tag counts, in a thought and in an echo of the prompt too; a tag may stay open; two molecules are
one where each is a substructure of the other, which does not look at hydrogens; a molecule that is
repeated in C3 is a false positive; C4 is compared with the stored answer and nothing else.

Surprising: their runner for C4 crashes on every reply. These are the rules of the evaluator that it
fails to call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rel_batch.records import Instance, Score

_LABEL = re.compile(r"<\s*(yes|no)\s*>", re.IGNORECASE)
_SMILES = re.compile(r"<smiles>\s*([^<\n\r]+)", re.IGNORECASE)
_INDICES = re.compile(r"<indices>\s*([0-9][0-9,\s]*)</indices>", re.IGNORECASE)
_MOTIF = re.compile(r"<motif_([0-9]{1,6})>\s*([^<\n\r]+)", re.IGNORECASE)


def score_isomer_set(instance: Instance, reply: str) -> Score:
    """C1: the first tag."""
    match = _LABEL.search(reply)
    if match is None:
        return Score("unparsed", failure="no_answer")
    label = match[1].capitalize()
    return _score(label, None if label == instance.answer["label"] else "wrong_label")


def score_common_motif(instance: Instance, reply: str) -> Score:
    """C2: the first tag."""
    match = _SMILES.search(reply)
    if match is None:
        return Score("unparsed", failure="no_answer")
    smiles = match[1].strip()
    right = _is_same(smiles, instance.answer["smiles"])
    return _score(smiles, None if right else "wrong_molecule")


def score_missing_isomers(instance: Instance, reply: str) -> Score:
    """C3: all tags; each gold molecule is found once and every other tag is a false positive."""
    found = [smiles.strip() for smiles in _SMILES.findall(reply)]
    if not found:
        return Score("unparsed", failure="no_answer", precision=0.0, recall=0.0, f1=0.0)
    from rel_batch.chem.molecules import canonical_forms, skeleton

    gold = _skeletons(tuple(instance.answer["missing_smiles"]))
    forms = canonical_forms(map(_without_name, found))
    molecules = Counter(
        gold.get(form) or skeleton(form)
        for smiles in found
        if (form := forms[_without_name(smiles)]) is not None
    )
    hits = (molecules & Counter(gold.values())).total()
    precision, recall = hits / len(found), hits / len(gold)
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    failure = None if precision == recall == 1 else "wrong_molecules"
    return Score("incorrect" if failure else "correct", found, failure, precision, recall, f1)


def score_motif_selection(instance: Instance, reply: str) -> Score:
    """C4: the stored answer, motif by motif."""
    indices = _INDICES.search(reply)
    motifs: Mapping[str, str] = {m[1]: m[2].strip() for m in _MOTIF.finditer(reply)}
    listed = re.findall("[0-9]+", indices[1]) if indices else []
    if not listed or not motifs.keys() >= {*listed}:
        return Score("unparsed", failure="no_answer")
    gold: Mapping[str, str] = instance.answer["selected_motifs"]
    right = {*listed} == motifs.keys() == gold.keys() and all(
        _is_same(motifs[index], smiles) for index, smiles in gold.items()
    )
    return _score(dict(motifs), None if right else "not_the_stored_answer")


def _score(prediction: Any, failure: str | None) -> Score:
    return Score("incorrect" if failure else "correct", prediction, failure)


def _is_same(smiles: str, gold: str) -> bool:
    from rel_batch.chem.molecules import canonical_form, skeleton

    form, wanted = canonical_form(_without_name(smiles)), canonical_form(gold)
    if form is None or wanted is None:
        return False
    return form == wanted or skeleton(form) == skeleton(wanted)


def _without_name(smiles: str) -> str:
    # They let RDKit take what follows a space for a name.
    return smiles.partition(" ")[0]


@lru_cache(maxsize=1_024)
def _skeletons(gold: tuple[str, ...]) -> Mapping[str, str | None]:
    """Each gold molecule's skeleton, by its canonical form."""
    from rel_batch.chem.molecules import canonical_forms, skeleton

    return {form: skeleton(form) for form in canonical_forms(gold).values() if form is not None}
