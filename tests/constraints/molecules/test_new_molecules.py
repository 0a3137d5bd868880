"""`NewMolecules`: each molecule of a set at most once, in any spelling; and the isomers in it."""

from __future__ import annotations

import dataclasses
import random
from array import array

import pytest
from rdkit import Chem
from rdkit.Chem.rdMolDescriptors import CalcMolFormula

from rel_batch import constraint_for, read_instances
from rel_batch.chem.assisted import bond_placements, missing_isomers
from rel_batch.chem.molecules import canonical_form
from rel_batch.chem.universes import isomers
from rel_batch.constraints import Constraint, Nothing
from rel_batch.constraints.encoding import decode, encode
from rel_batch.constraints.molecules import NewMolecules, native
from rel_batch.constraints.molecules.graphs import read_graph
from rel_batch.constraints.molecules.readings import first_rows, render_graphs
from rel_batch.engine.structured_outputs import compile_check
from rel_batch.tasks import task_for

LEAF = NewMolecules((("CCO",), ("COC",), ("c1ccccc1", "C1=CC=CC=C1")), "<s>", "</s>")


def reads(leaf: NewMolecules, text: str) -> bool:
    return Constraint("formula", leaf).matches(text)


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        ("<s>CCO</s>", True, "one molecule"),
        ("<s>OCC</s>\n<s>COC</s>", True, "two"),
        ("<s>OCC</s>\n<s>CCO</s>", False, "the same one, written in another way"),
        ("<s>C(O)C</s>", True, "a branch"),
        ("<s>C(C)(O)</s>", True, "a branch at the end, as RDKit takes it"),
        ("<s>C(C)O</s>\n<s>O(C)C</s>\n<s>c1ccccc1</s>", True, "all of them"),
        ("<s>C1=CC=CC=C1</s>", True, "a Kekule structure"),
        ("<s>c1ccccc1</s>\n<s>C1C=CC=CC=1</s>", False, "the same molecule, written as Kekule does"),
        ("<s>c3ccccc3</s>", True, "another ring number"),
        ("<s>C-C-O</s>", False, "a single bond is not written where it need not be"),
        ("<s>C=CO</s>", False, "a molecule of other hydrogens"),
        ("<s>CC</s>", False, "a part of one"),
        ("<s>CCOC</s>", False, "more than one"),
        ("<s>[13CH3]CO</s>", False, "isotopes are not written"),
        ("<s>CCO</s>\n", False, "a line without a molecule"),
        ("<s>CCO</s><s>COC</s>", False, "no line between"),
        ("", False, "nothing"),
    ],
)
def test_each_molecule_comes_at_most_once(text: str, expected: bool, why: str) -> None:
    assert reads(LEAF, text) is expected, why


def test_it_travels_to_the_engine_and_back() -> None:
    constraint = Constraint("formula", LEAF)
    assert decode(encode(constraint)) == constraint


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("[CH3]", "[CH3]"), "no molecule has the formula CH3"),
        (("C", "CC"), "no one formula, but C2H6, CH4"),
        (("CCO", "COC"), "all are given"),
        (("CCCCCCCCCCCC",), "12 heavy atoms"),
        (("C[Si](C)C",), "element Si is not one of"),
        (("not a molecule",), "None"),
    ],
)
def test_without_a_molecule_to_write_there_is_a_reason(given: tuple[str, ...], reason: str) -> None:
    leaf = missing_isomers(given, "<s>", "</s>")
    assert isinstance(leaf, Nothing)
    assert reason in leaf.reason


def test_a_formula_with_one_missing_isomer_works() -> None:
    leaf = missing_isomers(("CCO",), "<smiles>", "</smiles>")
    assert isinstance(leaf, NewMolecules)
    assert reads(leaf, "<smiles>COC</smiles>")
    assert not reads(leaf, "<smiles>CCO</smiles>")
    assert not reads(leaf, "<smiles>COC</smiles>\n<smiles>O(C)C</smiles>")


@pytest.mark.parametrize("formula", ["C4H4Br2", "C3H4O2", "C4H4O"])
def test_every_spelling_without_stereo_marks_is_read(formula: str) -> None:
    universe = isomers(formula)
    leaf = NewMolecules(tuple(bond_placements(smiles) for smiles in universe), "<", ">")
    chosen = random.Random(2).sample(universe, min(len(universe), 12))
    aromatic = [s for s in universe if any(char in s for char in "cnos")]
    for smiles in {*chosen, *aromatic}:
        molecule = Chem.MolFromSmiles(smiles)
        kekulized = Chem.Mol(molecule)
        Chem.Kekulize(kekulized, clearAromaticFlags=True)
        spellings = {
            *Chem.MolToRandomSmilesVect(molecule, 20, randomSeed=1),
            *Chem.MolToRandomSmilesVect(kekulized, 20, randomSeed=1, kekuleSmiles=True),
        }
        assert [text for text in spellings if not reads(leaf, f"<{text}>")] == []


def _walk(leaf: NewMolecules, rng: random.Random, free: int) -> str:
    """A random text of the leaf; at each step there is a way that is nearer to the end."""
    state, text = leaf.first(), ""
    while True:
        chars = sorted(leaf.next_chars(state))
        ways = {c: after for c in chars if (after := leaf.step(state, c)) is not None}
        distance = leaf.distance(state)
        assert leaf.is_final(state) == (distance == 0)
        if distance:
            assert min(map(leaf.distance, ways.values())) < distance
        if not ways or (free <= 0 and distance == 0):
            return text
        free -= 1
        near = [c for c in ways if free > 0 or leaf.distance(ways[c]) < distance]
        char = rng.choice(near)
        state, text = ways[char], text + char


@pytest.mark.parametrize("formula", ["C4H4Br2", "C3H4O", "C4H9F", "C4H4O"])
def test_every_complete_molecule_has_the_formula_and_is_new(formula: str) -> None:
    rng = random.Random(3)
    given = isomers(formula)[:2]
    leaf = missing_isomers(given, "<smiles>", "</smiles>")
    assert isinstance(leaf, NewMolecules)
    for _ in range(5):
        written = list(given)
        for line in _walk(leaf, rng, rng.choice((0, 10, 60))).split("\n"):
            smiles = line.removeprefix("<smiles>").removesuffix("</smiles>")
            assert CalcMolFormula(Chem.MolFromSmiles(smiles)) == formula
            written.append(canonical_form(smiles) or "")
        assert len(set(written)) == len(written)


def test_compiled_and_plain_readings_agree() -> None:
    compiled, plain = native.load_automaton(), native.PythonAutomaton()
    if not isinstance(compiled, native.NativeAutomaton):
        pytest.skip("the compiled automaton was not built")
    molecules = tuple(bond_placements(smiles) for smiles in isomers("C4H4O"))
    graphs = array("q", render_graphs(molecules))
    rng = random.Random(8)
    for _ in range(6):
        rows = array("q", first_rows(graphs.tolist())).tobytes()
        while rows:
            nearest = compiled.nearest(graphs, 7, rows, len(molecules))
            assert nearest == plain.nearest(graphs, 7, rows, len(molecules))
            groups = compiled.expand(graphs, rows)
            assert groups == plain.expand(graphs, rows)
            rows = rng.choice(groups).rows if groups else b""


def test_given_molecules_are_not_written_and_share_what_is_known_of_the_set() -> None:
    leaf = dataclasses.replace(LEAF, given=(0, 2))
    assert reads(leaf, "<s>COC</s>")
    assert not reads(leaf, "<s>CCO</s>")
    assert not reads(leaf, "<s>COC</s>\n<s>c1ccccc1</s>")
    assert "COC" in leaf.text_form()
    assert "CCO" not in leaf.text_form()


@pytest.mark.parametrize(
    ("smiles", "reason"), [("C" * 13, "more than 12 atoms"), ("[99CH3+2]", "more than 6 char")]
)
def test_a_molecule_that_is_too_large_to_be_followed_is_refused(smiles: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        render_graphs(((smiles,),))


@pytest.mark.parametrize("smiles", ["C1CC", "C(C", "Cé", "C.C", "[CH3", "", "C@C"])
def test_a_text_that_is_no_plain_smiles_is_no_graph(smiles: str) -> None:
    with pytest.raises(ValueError, match="not a plain SMILES"):
        read_graph(smiles)


@pytest.mark.parametrize(
    ("task", "changes", "reason"),
    [
        ("REL-C3", {"molecules": ("CCO", "COC")}, "all are given"),
        ("REL-C3", {"molecules": ("CCO", "CC")}, "no one formula"),
        ("REL-C4", {"molecules": ("CCO",) * 3}, "no substructure of CCO with 6 atoms"),
        ("REL-C2", {"molecules": ("not a molecule", "C")}, "RDKit does not read"),
    ],
)
def test_a_question_without_an_answer_is_found_before_anything_is_decoded(
    task: str, changes: dict[str, object], reason: str
) -> None:
    instance = read_instances("bundled", tasks=[task])[0]  # type: ignore[list-item]
    broken = dataclasses.replace(instance, answer={**instance.answer, **changes})
    constraint = constraint_for(broken, "formula")
    problem = compile_check(constraint, "default", tokenizer=None)
    assert problem is not None
    assert reason in problem
    assert not constraint.matches(task_for(task).reference_reply(instance))
