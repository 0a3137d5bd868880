"""The laws of `Molecule`, on strings that were chosen and on random walks."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, RDConfig, rdBase

from rel_batch.constraints import Constraint, Repeat, Seq, Text
from rel_batch.constraints.molecules import ALPHABET, Molecule

SWEEP = os.environ.get("REL_BATCH_SWEEP") == "1"
MOLECULE = Molecule()

# string, whether it is admitted, why
CASES = [
    ("C", True, "one atom"),
    ("[H][H]", True, "hydrogen"),
    ("[2H]C([2H])[13CH3]", True, "isotopes"),
    ("C[C@@H](O)[C@H](F)Cl", True, "chirality"),
    ("F/C=C\\F", True, "bond direction"),
    ("C%10CC%10", True, "a ring number of two digits"),
    ("C0CC0", True, "ring number 0"),
    ("C%01CC%01", False, "RDKit takes no %0n"),
    ("C(C)1CC1", True, "a ring number after a branch"),
    ("C=1CC1", True, "a bond at one end of a ring only"),
    ("C=1CC=1", True, "the same bond at both ends"),
    ("C1CC", False, "an open ring"),
    ("C1C1", False, "a second bond between the same atoms"),
    ("C11", False, "a ring from an atom to itself"),
    ("C(C", False, "an open branch"),
    ("C()C", False, "an empty branch"),
    ("C((C))C", False, "a branch without an atom before it"),
    ("C=", False, "an open bond"),
    ("CC)", False, "a branch that was not opened"),
    ("C(C)(C)(C)(C)C", False, "carbon with five bonds"),
    ("[NH4+]", True, "a charged atom"),
    ("C[NH3]", False, "nitrogen with four bonds"),
    ("CS(=O)(=O)O", True, "hypervalent sulfur"),
    ("O=P(O)(O)O", True, "hypervalent phosphorus"),
    ("FS(F)(F)(F)(F)F", True, "six bonds of sulfur"),
    ("CI(C)C", True, "three bonds of iodine"),
    ("CCl(C)", False, "two bonds of chlorine"),
    ("CN(=O)=O", True, "nitro written with five bonds, which RDKit rewrites"),
    ("CN(C)(C)C", False, "four bonds of neutral nitrogen"),
    ("c1ccccc1", True, "benzene"),
    ("c1cccc1", False, "five carbons have no Kekule structure"),
    ("c1ccc1", True, "four have one"),
    ("n1cccc1", False, "pyrrole without its hydrogen"),
    ("[nH]1cccc1", True, "pyrrole"),
    ("c1ccncc1", True, "pyridine"),
    ("c1ccoc1", True, "furan"),
    ("c1cc[se]c1", True, "selenophene"),
    ("b1ccccc1", True, "boron in a ring"),
    ("c1ccccc1c1ccccc1", True, "two rings, joined by a single bond that is not written"),
    ("c1cccc1c1cccc1", False, "the bond between the rings cannot be double"),
    ("c1cccc1=c1cccc1", True, "unless it is written so"),
    ("c1cc(=O)cc[nH]1", True, "a double bond out of the ring"),
    ("c1ccc2c(c1)[nH]c1ccccc12", True, "fused rings"),
    ("c1cc2ccc3cccc4ccc(c1)c2c34", True, "pericondensed rings"),
    ("C1CC2CCC1CC2", True, "a bridge"),
    ("[c]1[o][c]2[cH][cH][c](N)[cH][c]2[c]1C", True, "two rings open at atoms that say theirs"),
    ("cc", False, "aromatic atoms outside a ring"),
    ("Cc", False, "an aromatic atom at the end of a chain"),
    ("C.C", False, "two molecules"),
    ("C*", False, "a wildcard"),
    ("C:C", False, "an aromatic bond is not written"),
    ("[Xx]", False, "no element"),
    ("[C@TH1]", False, "chirality other than @ and @@"),
    ("", False, "nothing"),
]


def read(text: str) -> bytes | None:
    state: bytes | None = MOLECULE.first()
    for char in text:
        if state is None:
            return None
        state = MOLECULE.step(state, char)
    return state


def admits(text: str) -> bool:
    state = read(text)
    return state is not None and MOLECULE.is_final(state)


def parses(text: str) -> bool:
    with rdBase.BlockLogs():
        return bool(text) and Chem.MolFromSmiles(text) is not None


def follow_ending(state: bytes) -> str:
    """The ending, read character by character; each brings the end one character nearer."""
    ending = MOLECULE.ending(state)
    for left, char in zip(range(len(ending), 0, -1), ending, strict=True):
        assert MOLECULE.distance(state) == left
        following = MOLECULE.step(state, char)
        assert following is not None
        state = following
    assert MOLECULE.is_final(state)
    return ending


@pytest.mark.parametrize(("text", "expected", "why"), CASES, ids=[case[0] or "-" for case in CASES])
def test_a_string_is_admitted_or_not(text: str, expected: bool, why: str) -> None:
    assert admits(text) is expected, why
    if expected:
        assert parses(text), why


def _rel_molecules(shared: Path) -> list[str]:
    found: set[str] = set()
    for file in (*(shared / "data/rel/chemistry").glob("*.jsonl"), *shared.glob("data/*/REL-C4*")):
        for line in file.read_text().splitlines():
            answer = json.loads(line)["answer"]
            found |= {*answer.get("molecules", ()), *answer.get("missing_smiles", ())}
            found |= {*answer.get("selected_motifs", {}).values()}
            if "smiles" in answer:
                found.add(answer["smiles"])
    return sorted(found)


def test_every_molecule_of_rel_is_admitted_as_released(shared: Path) -> None:
    molecules = _rel_molecules(shared)
    assert len(molecules) > 6000
    assert [text for text in molecules if not admits(text)] == []


def _spellings(text: str, number: int) -> set[str]:
    molecule = Chem.MolFromSmiles(text)
    kekulized = Chem.Mol(molecule)
    Chem.Kekulize(kekulized, clearAromaticFlags=True)
    seeds = list(range(1, number + 1))
    return {
        *Chem.MolToRandomSmilesVect(molecule, number, randomSeed=seeds[0]),
        Chem.MolToSmiles(kekulized, kekuleSmiles=True),
        *Chem.MolToRandomSmilesVect(kekulized, 2, randomSeed=1, kekuleSmiles=True),
        Chem.MolToSmiles(molecule, allHsExplicit=True),
    }


def test_spellings_of_rels_molecules_are_admitted(shared: Path) -> None:
    chosen = random.Random(4).sample(_rel_molecules(shared), 500 if SWEEP else 100)
    spellings = {s for text in chosen for s in _spellings(text, 100 if SWEEP else 10)}
    refused = [text for text in spellings if not admits(text)]
    assert len(refused) <= MOST_SPELLINGS_REFUSED * len(spellings), refused[:10]


def test_molecules_that_ship_with_rdkit_are_admitted() -> None:
    folder = Path(RDConfig.RDContribDir)
    found = {
        word
        for file in (folder / "mmpa/data/simple.smi", folder / "Fastcluster/cdk2.smi")
        for word in re.split(r"[\s,]+", file.read_text())
        if len(word) > 5 and "." not in word and "*" not in word and parses(word)
    }
    assert len(found) > 40
    assert [text for text in sorted(found) if not admits(text)] == []


def _mutant(text: str, rng: random.Random) -> str:
    chars = list(text)
    for _ in range(rng.randint(1, 4)):
        place, change = rng.randrange(len(chars)), rng.random()
        if change < 0.4:
            chars[place] = rng.choice(MUTATIONS)
        elif change < 0.7:
            chars.insert(place, rng.choice(MUTATIONS))
        elif len(chars) > 1:
            chars.pop(place)
    return "".join(chars)


MUTATIONS = "CNOcno1234()=#[]+-HSFBlrsIP5@/\\%"
MOST_SPELLINGS_REFUSED = 0.001


def test_no_mutant_that_rdkit_refuses_is_admitted_and_few_others_are_refused(shared: Path) -> None:
    rng = random.Random(9)
    molecules = _rel_molecules(shared)
    mutants = [_mutant(rng.choice(molecules), rng) for _ in range(200_000 if SWEEP else 6_000)]
    verdicts = [(text, admits(text), parses(text)) for text in mutants]
    assert [text for text, ours, rdkit in verdicts if ours and not rdkit] == []
    valid = [(text, ours) for text, ours, rdkit in verdicts if rdkit]
    assert len(valid) > len(mutants) / 20
    assert sum(not ours for _, ours in valid) <= 0.05 * len(valid)


def _in_any_order(chars: str, rng: random.Random) -> Callable[[str], list[str]]:
    return lambda _: rng.sample(chars, len(chars))


def _walk(wishes: Callable[[str], list[str]], length: int) -> None:
    """Write the first character wished for that is taken, at each step; then end."""
    text, state = "", MOLECULE.first()
    for _ in range(length):
        for char in wishes(text):
            following = MOLECULE.step(state, char)
            if following is not None:
                break
        else:
            if MOLECULE.is_final(state):
                break
            char = MOLECULE.ending(state)[0]
            following = MOLECULE.step(state, char)
            assert following is not None
        text, state = text + char, following
        if MOLECULE.is_final(state):
            assert parses(text), text
    ending = follow_ending(state)
    assert parses(text + ending), (text, ending)


@pytest.mark.parametrize(
    "chars", [ALPHABET, "c(n1=s#o)[2c]-3@H+CON"], ids=["uniform", "adversarial"]
)
def test_a_random_walk_is_never_at_a_dead_end_and_always_ends_as_a_molecule(chars: str) -> None:
    rng = random.Random(17)
    for _ in range(5_000 if SWEEP else 150):
        _walk(_in_any_order(chars, rng), rng.randint(1, 60))


def test_a_walk_as_a_model_of_rels_molecules_writes_always_ends_as_a_molecule(shared: Path) -> None:
    following: dict[str, Counter[str]] = {}
    for molecule in _rel_molecules(shared):
        for place, char in enumerate(molecule):
            following.setdefault(molecule[max(0, place - 3) : place], Counter())[char] += 1
    rng = random.Random(18)

    def wishes(text: str) -> list[str]:
        """Every character, the likelier ones after the last three more often first."""
        counts = following.get(text[-3:], Counter())
        keys = {char: rng.random() ** (1 / (counts[char] + 0.01)) for char in ALPHABET}
        return sorted(ALPHABET, key=lambda char: -keys[char])

    for _ in range(5_000 if SWEEP else 150):
        _walk(wishes, rng.randint(1, 60))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=ALPHABET, max_size=30), st.text(alphabet=ALPHABET, max_size=10))
def test_a_rejected_prefix_stays_rejected(prefix: str, rest: str) -> None:
    if read(prefix) is None:
        assert read(prefix + rest) is None
        assert not admits(prefix + rest)


def test_prefixes_that_can_only_go_on_alike_are_one_state() -> None:
    assert read("CCN") == read("c1ccccc1CCN") == read("C(=O)OCC(F)N")
    assert read("c1cccc") != read("c1ccccc")


def test_it_stands_in_every_envelope() -> None:
    tagged = Seq((Text("<smiles>"), Molecule(), Text("</smiles>")))
    lines = Constraint("format", Seq((tagged, Repeat(Seq((Text("\n"), tagged)), 0, None))))
    assert lines.matches("<smiles>CC</smiles>\n<smiles>c1ccccc1</smiles>")
    assert not lines.matches("<smiles>CC</smiles>\n<smiles>c1cccc1</smiles>")
    assert lines.admits_prefix("<smiles>CC(")
    assert not lines.admits_prefix("<smiles>CC)")
    motifs = Constraint(
        "format", Seq((Text("<motif_0>"), Molecule(), Text("</motif_0>\n<motif_1>"), Molecule()))
    )
    assert motifs.matches("<motif_0>CO</motif_0>\n<motif_1>N")


HOSTILE = [
    ("C" * 1000, True, "1,000 atoms in a chain"),
    ("C1" + "C" * 1000 + "1", True, "in a ring"),
    ("c1" + "c" * 997 + "1", True, "in an aromatic one"),
    ("C" + "(C)(C)C" * 333, True, "1,000 atoms and many branches"),
    ("c1ccc(" * 6 + "C" + ")cc1" * 6, True, "nested rings"),
    ("c1ccc(" * 40 + "C" + ")cc1" * 40, False, "more open rings than are remembered"),
    ("C(" * 200 + "C" + ")" * 200, False, "more open branches than are remembered"),
    (
        "".join(f"C%{n}" for n in range(10, 40)) + "C".join(f"C%{n}" for n in range(10, 40)),
        True,
        "thirty ring numbers of two digits",
    ),
    ("C%12CC%12", True, "a ring number of two digits"),
    ("C%1CC%1", False, "a ring number that is cut"),
    ("C%123CC%12CC3", True, "a number of two digits, then one of one"),
    ("c1ccc2ccccc2c1", True, "two fused aromatic rings"),
    ("c1cc2cccc3c4cccc5cccc(c(c1)c23)c45", True, "perylene: five fused rings"),
    ("c1cc2ccc3ccc4ccc5ccc6ccc1c1c2c3c4c5c61", True, "coronene"),
    ("C1CC2CC1C=C2", True, "a bridged ring"),
    ("C12C3C4C1C5C4C3C25", True, "cubane"),
    ("C1C2CC3CC1CC(C2)C3", True, "adamantane"),
    ("c1cc2cc(c1)CCc1cccc(c1)CC2", True, "aromatic rings, bridged"),
    ("[13CH3][C@@H]([15NH2])C(=O)[18O-]", True, "isotopes, stereo and a charge"),
    ("C/C=C/[C@H](F)\\C=C\\Cl", True, "marks of stereo"),
    ("[Fe+2]", False, "a metal"),
    ("[NH4+]", True, "a charged atom"),
    ("[CH5]", False, "more hydrogens than carbon takes"),
    ("[CH3-]", True, "a carbanion"),
    ("[S+4]", True, "a high charge"),
    ("CS(C)(C)(C)(C)C", True, "six bonds of sulfur"),
    ("CS(C)(C)(C)(C)(C)C", False, "seven"),
    ("CP(C)(C)(C)C", True, "five bonds of phosphorus"),
    ("FI(F)(F)(F)F", True, "five bonds of iodine"),
    ("[999C]", True, "the largest isotope"),
    ("[1000C]", False, "one more digit"),
    ("(" * 20_000, False, "branches of nothing"),
    ("[" * 20_000, False, "brackets in brackets"),
    ("1" * 20_000, False, "numbers of nothing"),
    ("[13C@@H2+" * 1000, False, "a bracket that is not closed"),
    ("C\u00e9", False, "a letter that is no element's"),
    ("C\U0001f600", False, "no letter"),
    ("C\x00", False, "a null"),
]


@pytest.mark.parametrize(
    ("text", "expected", "why"), HOSTILE, ids=[case[2].replace(" ", "_") for case in HOSTILE]
)
def test_hostile_input_is_read_in_bounded_time_and_memory(
    text: str, expected: bool, why: str
) -> None:
    assert admits(text) is expected, why
    if expected and len(text) < 900:
        assert parses(text), why
