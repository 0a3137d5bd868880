"""REL-B1: do the gold taxa exist, and do they share the block that the record speaks of?

The block is a run of columns in which all gold taxa agree. How long it is to be is not in the
question: the metadata state it; where they do not, nothing is decided.

Surprising: names and positions look alike (`notation.py`). Where neither is proven, the block can
tell: taxa read in the wrong notation share no long run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rel_batch.errors import DataError
from rel_batch.instances.audit.findings import Findings
from rel_batch.instances.notation import Proven, in_names, prove_notation, with_taxa_names
from rel_batch.tasks import TASKS
from rel_batch.tasks.alignment import taxa_names
from rel_batch.tasks.task import FieldError, RawRecord

_SEQUENCE = re.compile(r"^[ \t]*>([^\n]+)\n\s*([A-Za-z*-]+)[ \t]*$", re.MULTILINE)


def notation_of(
    records: Sequence[tuple[int, RawRecord]], where: str
) -> tuple[Proven, Mapping[str, Any] | None]:
    """How the REL-B1 records of a file name taxa, and the evidence where only the blocks tell.

    The notation under which more records have the longer shared run; names where they are even.
    """
    try:
        return prove_notation(records, where), None
    except DataError as error:
        longer = {"names": 0, "positions": 0}
        for _, record in records:
            runs = {notation: _run_under(record, notation) for notation in ("names", "positions")}
            if runs["names"] != runs["positions"]:
                longer[max(runs, key=lambda notation: runs[notation])] += 1
        found: Proven = "positions" if longer["positions"] > longer["names"] else "names"
        return found, {"why": error.message, "longer_run_as": longer, "taken_as": found}


def _run_under(record: RawRecord, notation: Proven) -> int:
    taxa: Any = record.answer.get("taxa")
    if not isinstance(taxa, list) or not taxa:
        return 0
    try:
        names = in_names(cast(list[Any], taxa), taxa_names(record.question), notation)
    except FieldError:
        return 0
    return shared_run(_sequences(record.question), names)


def audit_taxa(record: RawRecord, notation: Proven) -> Findings:
    """Whether the gold taxa are in the alignment and share their block. Raises FieldError."""
    try:
        named = with_taxa_names(record, notation)
    except FieldError as error:
        if error.field != "answer.taxa":
            raise
        return Findings(("unknown_taxa",), detail={"problem": error.problem})
    TASKS[record.task].describe(named)
    if named.answer["label"] == "no":
        return Findings()
    run = shared_run(_sequences(record.question), named.answer["taxa"])
    stated = record.metadata.get("block_len")
    if type(stated) is not int:
        return Findings(undecided=("block",), detail={"shared_run": run})
    if run < stated:
        return Findings(("no_block",), detail={"shared_run": run, "block_len": stated})
    return Findings()


def shared_run(sequences: Mapping[str, str], names: Sequence[str]) -> int:
    """The length of the longest run of columns in which all named sequences agree.

    >>> shared_run({"2": "ACGTA", "3": "CCGTT", "4": "GCGAA"}, ["2", "3"])
    3
    """
    longest = run = 0
    for column in zip(*(sequences.get(name, "") for name in names), strict=False):
        run = run + 1 if len(set(column)) == 1 else 0
        longest = max(longest, run)
    return longest


def _sequences(question: str) -> dict[str, str]:
    return {name.strip(): sequence for name, sequence in _SEQUENCE.findall(question)}
