"""Whether the gold taxa of REL-B1 are names or positions, and names in any case afterwards.

Files of both kinds exist: the released ones very likely hold the names, the reference builder
writes 0-based positions in the *string-sorted* list of names. Both look like `[18, 28]`, and a
wrong guess changes gold without a word, so the notation is declared, or proven by the whole file:
a value that is no name proves positions, one that is no position proves names.

    >>> in_names([0, 2], ["2", "3", "10"], "positions")
    ['10', '3']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast, get_args

from rel_batch.errors import DataError
from rel_batch.tasks.alignment import taxa_names
from rel_batch.tasks.task import FieldError, RawRecord

TaxaNotation = Literal["names", "positions", "auto"]
TAXA_NOTATIONS: tuple[TaxaNotation, ...] = get_args(TaxaNotation)
Proven = Literal["names", "positions"]


def with_taxa_names(record: RawRecord, notation: Proven) -> RawRecord:
    """The record with gold's taxa as names. Raises FieldError."""
    taxa = record.answer.get("taxa")
    if not isinstance(taxa, list):
        raise FieldError("answer.taxa", "expected an array of taxa")
    named = in_names(cast(list[Any], taxa), taxa_names(record.question), notation)
    return replace(record, answer={**record.answer, "taxa": named})


def in_names(taxa: Sequence[object], names: Sequence[str], notation: Proven) -> list[str]:
    """Taxa in the given notation as names. Raises FieldError."""
    ordered, known = sorted(names), set(names)
    named: list[str] = []
    for taxon in taxa:
        if notation == "positions":
            if type(taxon) is not int or not 0 <= taxon < len(ordered):
                problem = f"expected positions 0-{len(ordered) - 1}, found {taxon!r:.80}"
                raise FieldError("answer.taxa", problem)
            named.append(ordered[taxon])
        elif (type(taxon) is int or isinstance(taxon, str)) and str(taxon) in known:
            named.append(str(taxon))
        else:
            raise FieldError("answer.taxa", f"{taxon!r:.80} is no name of the alignment")
    return named


def prove_notation(records: Sequence[tuple[int, RawRecord]], where: str) -> Proven:
    """The notation that the REL-B1 records of one file prove; `records` have their line numbers.

    Raises DataError where they prove both or, having any taxa, neither.
    """
    proofs: dict[Proven, tuple[int, str]] = {}
    num_undecided = 0
    for line, record in records:
        try:
            names = set(taxa_names(record.question))
        except FieldError:
            continue  # the complaint about this line is made when it is read
        taxa = record.answer.get("taxa")
        for taxon in cast(list[Any], taxa) if isinstance(taxa, list) else []:
            is_name = isinstance(taxon, str | int) and str(taxon) in names
            is_position = type(taxon) is int and 0 <= taxon < len(names)
            if is_name and not is_position:
                proofs.setdefault("names", (line, f"{taxon!r:.80} is a name and no position"))
            elif is_position and not is_name:
                proofs.setdefault("positions", (line, f"{taxon!r} is a position and no name"))
            elif is_name:
                num_undecided += 1
    if len(proofs) == 2:
        (names_line, names_why), (line, why) = proofs["names"], proofs["positions"]
        raise DataError(
            f"{where}:{line}: answer.taxa: {why}, but on line {names_line} {names_why}: the file"
            " mixes the two notations",
            hint="split it, and read each part with taxa_notation: names or positions",
        )
    if not proofs and num_undecided:
        raise DataError(
            f"{where}: answer.taxa: each of the {num_undecided} gold taxa is a name of its"
            " alignment and a position in it, so the file does not say which is meant",
            hint="set taxa_notation: names (the released files, very likely) or positions (0-based"
            " in the string-sorted names, as the reference builder writes them)",
        )
    return "positions" if "positions" in proofs else "names"
