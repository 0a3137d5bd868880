"""Universes of isomers are complete: against the literature, and against the released golds."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rdkit import Chem

from rel_batch.chem.molecules import canonical_form, formula
from rel_batch.chem.universes import (
    VALENCES,
    isomers,
    parse_formula,
    render_formula,
    unsaturation,
)
from rel_batch.errors import ConfigError

# Constitutional isomers, stereo not counted. Alkanes: OEIS A000602 (Henze and Blair 1931). Alkyl
# halides: OEIS A000598. C6H6: 217 by MOLGEN. The small ones are in any textbook.
LITERATURE = {
    "CH4": 1,
    "C4H10": 2,
    "C5H12": 3,
    "C6H14": 5,
    "C7H16": 9,
    "C8H18": 18,
    "C9H20": 35,
    "C10H22": 75,
    "C3H7Cl": 2,
    "C4H9Cl": 4,
    "C5H11Br": 8,
    "C6H13F": 17,
    "C7H15I": 39,
    "C2H6O": 2,
    "C3H8O": 3,
    "C4H10O": 7,
    "C5H12O": 14,
    "C3H9N": 4,
    "C4H11N": 8,
    "C4H8": 5,
    "C5H10": 10,
    "C3H4": 3,
    "C4H6": 9,
    "C3H6O": 9,
    "C4H8O": 26,
    "C6H6": 217,
}


@pytest.mark.parametrize("molecular_formula", LITERATURE)
def test_the_number_of_isomers_is_that_of_the_literature(molecular_formula: str) -> None:
    assert len(isomers(molecular_formula)) == LITERATURE[molecular_formula]


def by_brute_force(counts: dict[str, int]) -> set[str]:
    """Every way to give each pair of heavy atoms a bond order 0-3, tried."""
    atoms = [e for e, number in counts.items() if e != "H" for _ in range(number)]
    pairs = list(combinations(range(len(atoms)), 2))
    found: set[str] = set()
    for orders in product(range(4), repeat=len(pairs)):
        free = [VALENCES[element] for element in atoms]
        for (i, j), order in zip(pairs, orders, strict=True):
            free[i] -= order
            free[j] -= order
        if min(free) < 0 or sum(free) != counts.get("H", 0):
            continue
        molecule = Chem.RWMol()
        for element in atoms:
            molecule.AddAtom(Chem.Atom(element))
        for (i, j), order in zip(pairs, orders, strict=True):
            if order:
                molecule.AddBond(i, j, Chem.BondType.values[order])
        smiles = Chem.CanonSmiles(Chem.MolToSmiles(molecule))
        if "." not in smiles:
            found.add(smiles)
    return found


@settings(max_examples=25, deadline=None)
@given(
    heavy=st.lists(st.sampled_from(sorted(VALENCES)), min_size=1, max_size=4),
    rings=st.integers(0, 4),
)
def test_a_universe_is_what_trying_every_bond_finds(heavy: list[str], rings: int) -> None:
    saturated = 2 + sum(VALENCES[element] - 2 for element in heavy)
    assume(saturated >= 0)
    hydrogens = max(saturated % 2, saturated - 2 * rings)
    counts = {**Counter(heavy), "H": hydrogens}
    assert set(isomers(render_formula(counts))) == by_brute_force(counts)


@pytest.mark.parametrize("molecular_formula", ["C4H8O", "C3H5N", "C4H4Br2", "C6H6", "C3H4S2"])
def test_every_isomer_has_the_formula_and_is_listed_once(molecular_formula: str) -> None:
    found = isomers(molecular_formula)
    assert {formula(smiles) for smiles in found} == {molecular_formula}
    assert [canonical_form(smiles) for smiles in found] == sorted(set(found))


def test_the_kekule_forms_of_a_ring_are_one_isomer() -> None:
    assert [smiles for smiles in isomers("C6H6") if "c" in smiles] == ["c1ccccc1"]


@pytest.mark.parametrize(
    ("molecular_formula", "why"),
    [
        ("", "not a molecular formula"),
        ("ethanol", "not a molecular formula"),
        ("C4H10" * 20, "not a molecular formula"),
        ("C2H6Si", "element Si"),
        ("H2", "0 heavy atoms"),
        ("C11H24", "11 heavy atoms"),
        ("C99999", "99999 heavy atoms"),
        ("C2H7", "do not fit"),
        ("C2H8", "do not fit"),
    ],
)
def test_what_has_no_universe_is_refused(molecular_formula: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        isomers(molecular_formula)


def test_formulas_are_read_and_written() -> None:
    assert render_formula(parse_formula("BrC2H5O") or {}) == "C2H5BrO"
    assert unsaturation({"C": 2, "H": 6}) == 0
    assert unsaturation({"C": 2, "H": 5}) is None


def test_the_released_universes_lack_158_isomers_of_23_formulas_and_hold_no_wrong_one(
    shared: Path,
) -> None:
    lines = (shared / "data/rel/chemistry/REL-C3.jsonl").read_text().splitlines()
    released: dict[str, set[str]] = {}
    asked: dict[str, int] = {}
    for record in map(json.loads, lines):
        name = record["metadata"]["formula"]
        listed = record["answer"]["molecules"] + record["answer"]["missing_smiles"]
        released.setdefault(name, set()).update(filter(None, map(canonical_form, listed)))
        asked[name] = asked.get(name, 0) + 1
    missing = {name: set(isomers(name)) - known for name, known in released.items()}
    incomplete = [name for name, lacking in missing.items() if lacking]
    assert all(known <= set(isomers(name)) for name, known in released.items())
    assert len(released) == 53
    assert len(incomplete) == 23
    assert sum(map(len, missing.values())) == 158
    assert sum(asked[name] for name in incomplete) == 467
