"""`Substructure`: exactly what RDKit finds in the molecule, and never a dead end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rel_batch import read_instances
from rel_batch.chem.assisted import substructure_of
from rel_batch.chem.molecules import canonical_form
from rel_batch.chem.substructure_leaf import Substructure
from rel_batch.chem.substructure_walks import Walks
from rel_batch.chem.substructures import is_in, num_heavy_atoms
from rel_batch.constraints import Constraint, Nothing
from rel_batch.constraints.encoding import decode, encode

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
SULFONAMIDE = "Cc1ccc(S(=O)(=O)NC(=O)NN2CCCCCC2)cc1"
NAPHTHALENE = "Cc1cccc2ccccc12"
NITRO = "CC[N+](=O)[O-]"


def reads(leaf: Substructure, text: str) -> bool:
    return Constraint("formula", leaf).matches(text)


@pytest.mark.parametrize(
    ("molecule", "least", "text", "expected", "why"),
    [
        (ASPIRIN, 1, ASPIRIN, True, "all of it"),
        (ASPIRIN, 1, "c1ccccc1", True, "a ring"),
        (ASPIRIN, 1, "c2ccccc2C(O)=O", True, "in another spelling"),
        (ASPIRIN, 1, "OC(c1ccccc1)=O", True, "in yet another"),
        (ASPIRIN, 1, "CC=O", True, "cut at a single bond"),
        (ASPIRIN, 1, "CCO", True, "cut at a double bond"),
        (ASPIRIN, 3, "CC", False, "too small"),
        (ASPIRIN, 1, "CCC", False, "no three carbons are in a row outside the ring"),
        (ASPIRIN, 1, "C1CCCCC1", False, "the ring is aromatic"),
        (ASPIRIN, 1, "cccc", False, "no molecule"),
        (ASPIRIN, 1, "C.C", False, "not connected"),
        (ASPIRIN, 1, "N", False, "an element that it has not"),
        (NAPHTHALENE, 1, "c1ccccc1", True, "one of two fused rings"),
        (NAPHTHALENE, 1, "c1ccc2ccccc2c1", True, "both"),
        (SULFONAMIDE, 1, "O=[SH](=O)c1ccccc1", True, "hydrogen where a bond of sulfur was cut"),
        (SULFONAMIDE, 1, "O=[SH2](=O)c1ccccc1", False, "but no more of them"),
        (NITRO, 1, "C[N+](=O)[O-]", True, "charged atoms"),
        ("Cn1cccc1", 1, "c1cc[nH]c1", True, "hydrogen in place of a substituent"),
        ("c1cc[nH]c1", 1, "c1ccnc1", False, "no hydrogen where it has to be"),
    ],
)
def test_a_text_is_admitted_or_not(
    molecule: str, least: int, text: str, expected: bool, why: str
) -> None:
    assert reads(Substructure(molecule, least), text) is expected, why


def _motifs(shared: Path) -> Iterator[tuple[str, int, str]]:
    """Of REL-C2 and C4: molecule, asked size, and gold."""
    for instance in read_instances(shared / "data/rel/chemistry/REL-C2.jsonl"):
        yield instance.answer["molecules"][0], 1, instance.answer["smiles"]
    for instance in read_instances(shared / "data/regenerated/REL-C4.jsonl"):
        for index, motif in instance.answer["selected_motifs"].items():
            molecule = instance.answer["molecules"][int(index)]
            yield molecule, instance.metadata["min_motif_atoms"], motif


def test_gold_motifs_are_admitted(shared: Path) -> None:
    chosen = random.Random(1).sample(list(_motifs(shared)), 60)
    for molecule, least, motif in chosen:
        leaf = substructure_of(molecule, least)
        assert isinstance(leaf, Substructure)
        assert reads(leaf, motif), (molecule, motif)


def test_a_walk_never_is_at_a_dead_end_and_ends_as_a_substructure(shared: Path) -> None:
    rng = random.Random(5)
    for molecule, least, _ in rng.sample(list(_motifs(shared)), 8):
        leaf = substructure_of(molecule, least)
        assert isinstance(leaf, Substructure)
        for _ in range(3):
            state, text = leaf.first(), ""
            for _ in range(rng.randint(0, 25)):
                chars = sorted(leaf.next_chars(state))
                rng.shuffle(chars)
                ways = ((char, leaf.step(state, char)) for char in chars)
                char, after = next((way for way in ways if way[1] is not None), ("", None))
                if after is None:
                    assert leaf.is_final(state)
                    break
                state, text = after, text + char
                if leaf.is_final(state):
                    _is_a_part(text, molecule, least)
            while distance := leaf.distance(state):
                char = state.witness[0]
                after = leaf.step(state, char)
                assert after is not None
                assert leaf.distance(after) in (distance - 1, 0)
                state, text = after, text + char
            _is_a_part(text, molecule, least)


def _is_a_part(text: str, molecule: str, least: int) -> None:
    form = canonical_form(text)
    assert form is not None, text
    assert "." not in form
    assert num_heavy_atoms(text) >= least
    assert is_in(text, molecule), (text, molecule)


@pytest.mark.parametrize(
    "molecule", [ASPIRIN, SULFONAMIDE, NAPHTHALENE, NITRO, "O=C1CCc2[nH]ccc21"]
)
def test_parts_that_rdkit_is_not_asked_about_are_those_that_it_finds(
    molecule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unasked: list[tuple[int, int, tuple[tuple[int, str], ...]]] = []
    plain = Walks._is_plain_part  # pyright: ignore[reportPrivateUsage]

    def record(self: Walks, *part: Any) -> bool:
        if plain(self, *part):
            unasked.append(part)
        return False

    monkeypatch.setattr(Walks, "_is_plain_part", record)
    walks = Walks(molecule, 1)
    rng = random.Random(2)
    for _ in range(60):
        reading = (walks.start, "")
        for _ in range(rng.randint(1, 25)):
            ways = [after for char in sorted(walks.chars) for after in walks.steps(reading, char)]
            if not ways:
                break
            reading = rng.choice(ways)
            walks.ending(reading[0])
    assert unasked
    is_part = walks._is_part  # pyright: ignore[reportPrivateUsage]
    assert all(is_part(*part) for part in unasked)


@pytest.mark.parametrize(("molecule", "least"), [("CCO", 6), ("not a molecule", 1)])
def test_without_a_substructure_there_is_a_reason(molecule: str, least: int) -> None:
    leaf = substructure_of(molecule, least)
    assert isinstance(leaf, Nothing)
    assert molecule in leaf.reason


def test_it_travels_to_the_engine_and_back() -> None:
    constraint = Constraint("formula", Substructure(ASPIRIN, 3))
    assert decode(encode(constraint)) == constraint


def test_stereo_and_isotopes_of_the_molecule_do_not_matter() -> None:
    leaf = substructure_of("F/C=C/[C@@H]([2H])O", 2)
    assert isinstance(leaf, Substructure)
    assert reads(leaf, "FC=C")
