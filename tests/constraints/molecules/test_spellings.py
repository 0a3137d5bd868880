"""`Spellings`: each molecule of a set at most once, in any of its spellings; and who makes it."""

from __future__ import annotations

import random

import pytest
from rdkit import Chem
from rdkit.Chem.rdMolDescriptors import CalcMolFormula

from rel_batch.chem.assisted import fragments_of, missing_isomers
from rel_batch.chem.molecules import canonical_form
from rel_batch.chem.universes import isomers
from rel_batch.constraints import Constraint
from rel_batch.constraints.molecules import Spellings
from rel_batch.errors import ConfigError

GROUPS = (("CCO", "OCC"), ("COC",), ("CC", "C(C)"))


def reads(leaf: Spellings, text: str) -> bool:
    return Constraint("format", leaf).matches(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<s>CCO</s>", True),
        ("<s>OCC</s>\n<s>COC</s>", True),
        ("<s>OCC</s>\n<s>COC</s>\n<s>C(C)</s>", True),
        ("<s>OCC</s>\n<s>CCO</s>", False),
        ("<s>CCO</s>\n", False),
        ("<s>CO</s>", False),
        ("", False),
        ("<s>CCO</s><s>COC</s>", False),
    ],
)
def test_each_group_comes_at_most_once(text: str, expected: bool) -> None:
    assert reads(Spellings(GROUPS, "<s>", "</s>"), text) is expected


def test_without_texts_around_it_and_with_one_pick() -> None:
    leaf = Spellings(GROUPS, most=1)
    assert reads(leaf, "CC")
    assert reads(leaf, "CCO")
    assert not reads(leaf, "CC\nCOC")


def test_where_nothing_is_left_only_the_end_is_allowed() -> None:
    leaf = missing_isomers("C2H6O", ["CCO", "COC"], "<s>", "</s>")
    assert leaf.is_final(leaf.first())
    assert leaf.next_chars(leaf.first()) == frozenset()


def test_a_formula_that_no_molecule_has_is_refused_before_decoding() -> None:
    with pytest.raises(ConfigError):
        missing_isomers("CH9", [])


def test_a_formula_with_one_isomer_works() -> None:
    leaf = missing_isomers("CH4O", [], "<smiles>", "</smiles>")
    assert reads(leaf, "<smiles>CO</smiles>")
    assert reads(leaf, "<smiles>OC</smiles>")
    assert not reads(leaf, "<smiles>CO</smiles>\n<smiles>OC</smiles>")


@pytest.mark.parametrize("formula", ["C4H4Br2", "C3H4O", "C4H9F"])
def test_every_complete_molecule_has_the_formula_and_is_new(formula: str) -> None:
    rng = random.Random(3)
    given = isomers(formula)[:2]
    leaf = missing_isomers(formula, given, "<smiles>", "</smiles>")
    known = {canonical_form(smiles) for smiles in given}
    for _ in range(20):
        state, text, written = leaf.first(), "", list(known)
        for _ in range(400):
            chars = sorted(leaf.next_chars(state))
            if not chars:
                break
            char = rng.choice(chars)
            following = leaf.step(state, char)
            assert following is not None
            assert leaf.distance(following) >= leaf.distance(state) - 1
            state, text = following, text + char
        while leaf.distance(state):  # there is always a way to the end, a step at a time
            state, text = next(
                (following, text + char)
                for char in sorted(leaf.next_chars(state))
                if (following := leaf.step(state, char)) is not None
                and leaf.distance(following) == leaf.distance(state) - 1
            )
        for line in text.split("\n"):
            smiles = line.removeprefix("<smiles>").removesuffix("</smiles>")
            assert CalcMolFormula(Chem.MolFromSmiles(smiles)) == formula
            written.append(canonical_form(smiles))
        assert len(set(written)) == len(written)


@pytest.mark.parametrize(
    ("molecule", "least"),
    [
        ("CC(=O)OCC(COc1ccc(C(C)(C)c2ccc(OCC(CCl)OC(C)=O)cc2)cc1)OC(C)=O", 6),
        ("O=C1CCC(C(=O)Oc2ccc(O)cc2)N1", 4),
    ],
)
def test_every_fragment_is_connected_large_enough_and_in_its_molecule(
    molecule: str, least: int
) -> None:
    parent = Chem.MolFromSmiles(molecule)
    leaf = fragments_of(molecule, least)
    assert len(leaf.groups) > 20
    for group in leaf.groups:
        for smiles in group:
            fragment = Chem.MolFromSmiles(smiles)
            assert fragment.GetNumHeavyAtoms() >= least
            assert "." not in smiles
            assert parent.HasSubstructMatch(fragment)


def test_a_molecule_too_small_for_the_asked_fragment_is_refused() -> None:
    with pytest.raises(ConfigError):
        fragments_of("CCO", 6)
