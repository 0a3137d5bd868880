"""Re-derives the gold of a record from its question alone, and says where the two differ.

    >>> from rel_batch.instances.generate import generate
    >>> record = next(iter(generate("REL-C1", per_level=1, seed=0, size=5)))
    >>> audit_record(raw_record({**record, "answer": {**record["answer"], "label": "No"}})).findings
    ('wrong_label',)

A finding is a fault of the gold, or a reason why a right answer may be scored incorrect (an equal
alternative, an ambiguous count). What could not be decided (a search that was given up) is kept
apart: it is neither a fault nor a clean bill.

Surprising: nothing here uses the package's own readers of gold, nor metadata, except for the length
of REL-B1's block, which no question states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rel_batch.instances.audit import algebra, chemistry, homoplasy
from rel_batch.instances.audit.findings import AuditRow, Findings, Place
from rel_batch.instances.lines import shaped
from rel_batch.instances.notation import Proven
from rel_batch.tasks import TASKS
from rel_batch.tasks.task import FieldError, RawRecord

__all__ = [
    "MEANINGS",
    "AuditRow",
    "Findings",
    "Place",
    "audit_record",
    "raw_record",
]

# Every finding, and what it says of a record.
MEANINGS: Mapping[str, str] = {
    "unreadable": "the line is no REL record that can be read",
    "id_collision": "another record has the same id and other content",
    "repeated_question": "an earlier record asks the same question",
    "no_choice_fits": "the rule holds for none of the choices",
    "several_choices_fit": "the rule holds for several choices",
    "wrong_label": "the stored answer is not what the rule gives",
    "notation_unproven": "taxa may be names or positions; the block decided",
    "unknown_taxa": "gold lists a taxon that the alignment does not have",
    "no_block": "the gold taxa share no run of columns as long as the stated block",
    "molecules_differ": "the stored molecules are not those of the question",
    "repeated_molecules": "the question lists a molecule twice",
    "not_common": "gold is not a motif of every molecule",
    "disconnected": "gold is not one connected motif",
    "not_largest": "a common fragment has more bonds than gold",
    "more_atoms": "a common fragment has more atoms than gold",
    "equal_alternative": "another motif of gold's size is in every molecule",
    "incomplete": "isomers are missing from gold",
    "not_missing": "gold lists what is no missing isomer (another formula, or no molecule)",
    "given_in_gold": "gold lists a molecule that the question gives",
    "repeated_in_gold": "gold lists one molecule twice",
    "given_not_isomers": "the given molecules are not isomers of each other",
    "gold_fails": "the stored answer does not satisfy the question",
    "ambiguous_count": "RDKit's own group definitions count the stored answer differently",
}

_AUDITS = {
    "REL-A": algebra.audit_matrix,
    "REL-C1": chemistry.audit_isomer_set,
    "REL-C2": chemistry.audit_common_motif,
    "REL-C3": chemistry.audit_missing_isomers,
    "REL-C4": chemistry.audit_motif_selection,
}


def audit_record(record: RawRecord, notation: Proven = "names") -> Findings:
    """What is to be said of a record's gold. Total: a record that cannot be read is a finding.

    `notation` is how REL-B1's gold names taxa.
    """
    try:
        if record.task == "REL-B1":
            return homoplasy.audit_taxa(record, notation)
        TASKS[record.task].describe(record)
        return _AUDITS[record.task if record.task in _AUDITS else record.task[:5]](record)
    except FieldError as error:
        return unreadable(error)


def unreadable(error: FieldError) -> Findings:
    """The finding about a line that cannot be read."""
    return Findings(("unreadable",), detail={"problem": str(error)})


def raw_record(record: Mapping[str, Any]) -> RawRecord:
    """A record as a dict, its shape checked. Raises FieldError."""
    return shaped(dict(record), TASKS)
