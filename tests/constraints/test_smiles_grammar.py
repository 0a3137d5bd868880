"""The OpenSMILES grammar admits every molecule that REL shows or asks for, and little else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rel_batch import read_instances
from rel_batch.constraints.machine import Machine
from rel_batch.constraints.smiles_grammar import AROMATIC_SYMBOLS, ELEMENTS, SMILES, SMILES_RULES
from rel_batch.records import Instance

MACHINE = Machine(SMILES, dict(SMILES_RULES))
FILES = (
    *("rel/chemistry/REL-C1.jsonl", "rel/chemistry/REL-C2.jsonl", "rel/chemistry/REL-C3.jsonl"),
    "regenerated/REL-C4.jsonl",
)


def molecules_of(instance: Instance) -> Iterator[str]:
    """Given molecules and gold; for C4, where any of several motifs is right, those of the file."""
    answer = instance.answer
    yield from answer["molecules"]
    yield from answer.get("missing_smiles", ())
    yield from answer.get("selected_motifs", {}).values()
    if "smiles" in answer:
        yield answer["smiles"]


def test_every_gold_motif_and_given_molecule_of_rel_is_admitted(shared: Path) -> None:
    files = [shared / "data" / name for name in FILES]
    found = {smiles for file in files for i in read_instances(file) for smiles in molecules_of(i)}
    assert len(found) > 5_000
    assert [smiles for smiles in sorted(found) if not MACHINE.matches(smiles)] == []


@pytest.mark.parametrize("symbol", [*ELEMENTS, *AROMATIC_SYMBOLS, "*"])
def test_every_symbol_may_stand_in_brackets(symbol: str) -> None:
    assert MACHINE.matches(f"[{symbol}]")
    assert MACHINE.matches(f"C[2{symbol}@@H2+2:31]")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no atom"),
        (" C", "white space"),
        ("C ", "white space"),
        ("C\n", "white space"),
        ("C C", "white space"),
        ("H", "hydrogen needs brackets"),
        ("Si", "silicon needs brackets"),
        ("Na", "sodium needs brackets"),
        ("se", "aromatic selenium needs brackets"),
        ("CL", "chlorine has a small l"),
        ("f", "fluorine is never aromatic"),
        ("D", "deuterium is [2H]"),
        ("CH3", "hydrogens are counted in brackets only"),
        ("C+", "charges stand in brackets only"),
        ("C@", "chirality stands in brackets only"),
        ("[C", "the bracket is not closed"),
        ("C]", "the bracket was not opened"),
        ("[]", "no symbol"),
        ("[12]", "no symbol"),
        ("[[C]]", "brackets do not nest"),
        ("[CC]", "one atom in a bracket"),
        ("[Xx]", "no such element"),
        ("[cl]", "no such aromatic element"),
        ("[C13]", "the isotope comes first"),
        ("[+Na]", "the charge comes after the symbol"),
        ("[C+H]", "the charge comes after the hydrogens"),
        ("[CH@]", "chirality comes before the hydrogens"),
        ("[C@@@]", "chirality is @ or @@"),
        ("[C@TH3]", "TH is 1 or 2"),
        ("[C@TB21]", "TB ends at 20"),
        ("[C@OH31]", "OH ends at 30"),
        ("[C+16]", "charges end at 15"),
        ("[C+++]", "a doubled sign is the most"),
        ("[C+-]", "one sign"),
        ("[C:]", "a class has digits"),
        ("[1000C]", "isotopes are bounded to three digits"),
        ("[C:12345]", "classes are bounded to four digits"),
        ("(C)C", "a branch follows an atom"),
        ("C(", "the branch is not closed"),
        ("C)", "the branch was not opened"),
        ("C()", "an empty branch"),
        ("C(=)C", "a branch without an atom"),
        ("C((C))C", "a branch begins with an atom"),
        ("C(C)1CC1", "ring bonds come before branches"),
        ("=C", "a bond needs an atom before it"),
        ("C=", "a bond needs an atom after it"),
        ("C==C", "two bonds"),
        ("C~C", "no such bond"),
        (".C", "a dot stands between atoms"),
        ("C.", "a dot stands between atoms"),
        ("C..C", "two dots"),
        ("C.=C", "a dot is no bond"),
        ("1CC1", "a ring bond follows an atom"),
        ("C%1CC%1", "two digits follow a percent sign"),
        ("C%(12)C", "no such ring number"),
        ("C>>C", "a reaction"),
        ("CO</smiles>", "what is no SMILES"),
        ("С", "a Cyrillic letter"),
        ("C１CC１", "full-width digits"),
        ("C\0", "a control character"),
    ],
)  # fmt: skip
def test_what_is_no_smiles_is_refused(text: str, why: str) -> None:
    assert not MACHINE.matches(text), why


@pytest.mark.parametrize("text", ["C1CC", "CC1CC2", "C(C)(C)(C)(C)C", "c1cc1", "[H][H]", "F=F"])
def test_rings_and_valences_are_beyond_a_grammar(text: str) -> None:
    assert MACHINE.matches(text)
