"""Substructures: as RDKit finds them, and never without end."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from rdkit import Chem

from rel_batch.chem.substructures import is_in, num_heavy_atoms, shared_fraction

# A lattice of six-membered rings holds no odd ring, and a search tries every path to find that out.
LATTICE = (
    "CC1CC2CC3CC4CCCC5C6CCC7C8CCCC9CC%10CC%11CC(C)C%12CCC%13C%14CCC1C"
    "1C2C2C3C(C45)C3C6C7C4C(C98)C%10C5C%11C%12C%13C6C(C%141)C2C3C4C56"
)


@pytest.mark.parametrize(
    ("motif", "molecule", "is_one"),
    [
        ("CCO", "CCOC", True),
        ("OCC", "CCOC", True),
        ("c1ccccc1", "C1=CC=CC=C1C", True),
        ("C1CCCCC1", "c1ccccc1", False),
        ("C=CC=CC=C", "c1ccccc1", False),  # Kekule bonds are not aromatic ones
        ("CC=O", "CC(=O)O", True),
        ("CC[O-]", "CCO", False),
        ("CCO", "CC[O-]", True),
        ("[13CH3]C", "CCC", True),
        ("F/C=C/F", "F/C=C\\F", True),
        ("CCCC", "CCC", False),
        ("C.C", "CCC", True),
        ("C1CC", "CCC", False),  # what RDKit refuses is in nothing, and nothing is in it
        ("CCC", "C1CC", False),
    ],
)
def test_a_motif_is_in_a_molecule_as_rdkit_has_it(motif: str, molecule: str, is_one: bool) -> None:
    assert is_in(motif, molecule) is is_one


def test_the_bounded_search_agrees_with_rdkits_own_and_is_never_given_up_on_rel(
    shared: Path,
) -> None:
    rng = random.Random(0)
    lines = (shared / "data" / "regenerated" / "REL-C4.jsonl").read_text().splitlines()
    seen = {True: 0, False: 0}
    for answer in (json.loads(line)["answer"] for line in lines):
        for index, motif in answer["selected_motifs"].items():
            for parent in (answer["molecules"][int(index)], rng.choice(answer["molecules"])):
                query, molecule = Chem.MolFromSmiles(motif), Chem.MolFromSmiles(parent)
                found = is_in(motif, parent)
                assert found is molecule.HasSubstructMatch(query), (motif, parent)
                seen[found] += 1
    assert min(seen.values()) > 100


@pytest.mark.parametrize("ring", [29, 39])
def test_a_search_without_end_is_given_up_and_says_so(ring: int) -> None:
    assert is_in("C1" + "C" * ring + "C1", LATTICE) is None
    assert shared_fraction("C1" + "C" * ring + "C1", LATTICE) is None


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [
        ("CCO", "CCO", 1.0),
        ("CCO", "CCOC", 0.75),
        ("CCOC", "CCO", 0.75),
        ("CCN", "CCO", 2 / 3),
        ("C", "[Na]", 0.0),
        ("[H][H]", "[H][H]", 0.0),
        ("C1CC", "CCO", 0.0),
    ],
)
def test_what_two_molecules_share_is_measured_on_the_larger(
    first: str, second: str, share: float
) -> None:
    assert shared_fraction(first, second) == pytest.approx(share)


def test_a_search_that_takes_too_long_gives_what_it_has_found() -> None:
    share = shared_fraction("CC(C)C" * 12 + "N", "CCC(C)" * 12 + "O", timeout_s=1)
    assert share is not None
    assert 0.5 < share < 1


@pytest.mark.parametrize(
    ("smiles", "count"), [("CCO", 3), ("[2H]C([2H])C", 2), ("*C", 1), ("?", 0)]
)
def test_heavy_atoms_are_neither_hydrogens_nor_wildcards(smiles: str, count: int) -> None:
    assert num_heavy_atoms(smiles) == count
