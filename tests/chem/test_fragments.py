"""The size of the largest common motif, under both notions of large, in a bounded search."""

from __future__ import annotations

import pytest

from rel_batch.chem.fragments import LargestMotifs, largest_motifs


@pytest.mark.parametrize(
    ("molecules", "most_bonds", "most_atoms"),
    [
        (("CCCO", "CCCN"), (2, 3), (3, 2)),
        (("OCCCCN", "OCCC(F)CCN"), (4, 5), (5, 4)),
        (("Oc1ccccc1", "Nc1ccccc1"), (6, 6), (6, 6)),
    ],
)
def test_the_largest_by_bonds_and_by_atoms(
    molecules: tuple[str, ...], most_bonds: tuple[int, int], most_atoms: tuple[int, int]
) -> None:
    largest = largest_motifs(molecules)
    assert largest is not None
    assert (largest.most_bonds, largest.most_atoms) == (most_bonds, most_atoms)
    assert largest.is_proven


def test_a_search_ends_after_its_steps_and_says_so() -> None:
    terpenes = ("CC12CCC3C(C1CCC2O)CCC4=CC(=O)CCC34C", "CC12CCC3C(C1CCC2=O)CCC4=CC(=O)C=CC34C")
    given_up, ended = largest_motifs(terpenes, max_steps=2), largest_motifs(terpenes)
    assert given_up is not None
    assert (given_up.is_proven, given_up.has_all) == (False, False)
    assert ended is not None
    assert (ended.is_proven, ended.has_all) == (True, True)


def test_a_motif_reaches_the_largest_by_either_notion_but_not_by_less_of_both() -> None:
    largest = LargestMotifs((7, 6), (7, 6), frozenset(), is_proven=True, has_all=True)
    assert largest.reached_by("C1CC2CCC12")  # 6 atoms, 7 bonds
    assert largest.reached_by("CCCCCCC")  # 7 atoms, 6 bonds
    assert not largest.reached_by("C1CCCCC1")  # 6 of both


def test_every_motif_of_the_greatest_size_is_found() -> None:
    largest = largest_motifs(("OCCCCN", "OCCC(F)CCN"))
    assert largest is not None
    assert (largest.motifs, largest.has_all) == ({"CCCCO", "CCCCN"}, True)


@pytest.mark.parametrize("molecules", [(), ("not SMILES", "CC"), ("C1CC1" * 13, "CC")])
def test_what_cannot_be_searched_is_none(molecules: tuple[str, ...]) -> None:
    assert largest_motifs(molecules) is None
