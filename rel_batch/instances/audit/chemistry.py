"""REL-C: formulas, common motifs, missing isomers and motif counts, each derived afresh.

C1 from the molecules' formulas; C2 by two searches for the largest common fragment (by bonds, as
the golds were made, and by atoms); C3 from the complete universe of the formula; C4 by counting.

RDKit is loaded on use.
"""

from __future__ import annotations

import re

from rel_batch.instances.audit.findings import Findings
from rel_batch.records import Instance
from rel_batch.tasks import TASKS
from rel_batch.tasks.audited_gold import universe_of
from rel_batch.tasks.task import RawRecord

_MOLECULE = re.compile(r"^[0-9]{1,9}\. (\S+)[ \t]*$", re.MULTILINE)
_LISTS = ("SMILES:", "MOLECULES:")
_LIST_ENDS = ("STEP-BY-STEP", "Return ")


def listed_molecules(question: str) -> list[str]:
    """The numbered molecules of a question."""
    for heading in _LISTS:
        _, found, listed = question.partition(heading)
        if found:
            for end in _LIST_ENDS:
                listed = listed.partition(end)[0]
            return _MOLECULE.findall(listed)
    return []


def _check_list(record: RawRecord, molecules: list[str]) -> list[str]:
    from rel_batch.chem.molecules import canonical_forms

    findings: list[str] = []
    if molecules != list(record.answer["molecules"]):
        findings.append("molecules_differ")
    forms = canonical_forms(molecules)
    if len({forms[smiles] or smiles for smiles in molecules}) < len(molecules):
        findings.append("repeated_molecules")
    return findings


def audit_isomer_set(record: RawRecord) -> Findings:
    """C1: Yes exactly where all molecules have one formula."""
    from rel_batch.chem.molecules import formula

    molecules = listed_molecules(record.question)
    findings = _check_list(record, molecules)
    formulas = [formula(smiles) for smiles in molecules]
    label = "Yes" if len(set(formulas)) == 1 and None not in formulas else "No"
    if record.answer["label"] != label:
        findings.append("wrong_label")
    return Findings(tuple(findings), detail={"formulas": formulas} if findings else {})


def audit_common_motif(record: RawRecord) -> Findings:
    """C2: gold is one motif of every molecule, none is larger, and none other is as large."""
    from rel_batch.chem.fragments import contains, largest_motifs, size_of
    from rel_batch.chem.molecules import canonical_form, skeleton

    molecules = listed_molecules(record.question)
    gold = canonical_form(record.answer["smiles"])
    assert gold is not None  # a record without one is not read
    findings = _check_list(record, molecules)
    if "." in gold:
        findings.append("disconnected")
    if not all(contains(smiles, gold) for smiles in molecules):
        findings.append("not_common")
    largest = largest_motifs(tuple(molecules))
    if largest is None:
        return Findings(tuple(findings), undecided=("largest",))
    atoms, bonds = size_of(gold)
    undecided = [] if largest.is_proven else ["largest"]
    if largest.most_bonds > (bonds, atoms):
        findings.append("not_largest")
    if largest.most_atoms[0] > atoms:
        findings.append("more_atoms")
    # Hydrogens are not looked at when motifs are matched: another place for one is no other motif.
    others = sorted(m for m in largest.motifs if skeleton(m) != skeleton(gold))
    if any(size_of(other) == (atoms, bonds) for other in others):
        findings.append("equal_alternative")
    elif not largest.has_all:
        undecided.append("alternatives")
    detail = {
        "gold": {"atoms": atoms, "bonds": bonds},
        "most_bonds": {"bonds": largest.most_bonds[0], "atoms": largest.most_bonds[1]},
        "most_atoms": {"atoms": largest.most_atoms[0], "bonds": largest.most_atoms[1]},
        "others": others,
    }
    return Findings(tuple(findings), tuple(undecided), detail if findings else {})


def audit_missing_isomers(record: RawRecord) -> Findings:
    """C3: gold is the universe of the formula, less what the question gives."""
    from rel_batch.chem.molecules import canonical_forms, formula

    molecules = listed_molecules(record.question)
    findings = _check_list(record, molecules)
    formulas = {formula(smiles) for smiles in molecules}
    given = {form for form in canonical_forms(molecules).values() if form}
    listed = list(record.answer["missing_smiles"])
    forms = canonical_forms(listed)
    gold = {form for form in forms.values() if form}
    if len(formulas) != 1:
        findings.append("given_not_isomers")
    if given & gold:
        findings.append("given_in_gold")
    if len({forms[smiles] or smiles for smiles in listed}) < len(listed):
        findings.append("repeated_in_gold")
    (name,) = formulas if len(formulas) == 1 else (None,)
    universe = None if name is None else universe_of(name)
    if universe is None:
        return Findings(tuple(findings), undecided=("universe",), detail={"formula": name})
    absent = sorted(universe - given - gold)
    wrong = sorted(gold - universe)
    if wrong:
        findings.append("not_missing")
    if absent:
        findings.append("incomplete")
    detail = {"formula": name, "absent": absent, "wrong": wrong}
    return Findings(tuple(findings), detail=detail if findings else {})


def audit_motif_selection(record: RawRecord) -> Findings:
    """C4: the stored answer satisfies the question, whatever the definition of the group."""
    from rel_batch.chem.groups import count_by_rdkit

    task = TASKS[record.task]
    molecules = listed_molecules(record.question)
    findings = _check_list(record, molecules)
    instance = Instance(
        *("", record.id, record.task, "", record.question, record.answer, record.metadata),
        *(len(molecules), len(molecules), ""),
    )
    failure = task.score(instance, task.reference_reply(instance), truncated=False).failure
    detail: dict[str, object] = {}
    if failure is not None:
        findings.append("gold_fails")
        detail["failure"] = failure
    kind, target = record.metadata["constraint_type"], record.metadata["target_value"]
    motifs: list[str] = list(record.answer["selected_motifs"].values())
    total = sum(count_by_rdkit(kind, motif) for motif in motifs) if failure is None else target
    if total != target:
        findings.append("ambiguous_count")
        detail |= {"target": target, "total_by_rdkit": total}
    return Findings(tuple(findings), detail=detail)
