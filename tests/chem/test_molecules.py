"""Which molecule a string denotes, and what reading it may cost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from rel_batch.chem import molecules
from rel_batch.chem.molecules import (
    MAX_SMILES_CHARS,
    canonical_form,
    canonical_forms,
    formula,
    is_smiles,
    skeleton,
)


@pytest.mark.parametrize(
    ("smiles", "form"),
    [
        ("OC1=CC=CC=C1", "Oc1ccccc1"),
        ("C[C@H](O)F", "CC(O)F"),
        ("F/C=C/F", "FC=CF"),
        ("[2H]OCC", "CCO"),
        ("[13CH3:4]C", "CC"),
        ("[H]C([H])([H])[H]", "C"),
        ("[H]/N=C/C", "CC=N"),
        ("[H][H]", "[H][H]"),
        ("[H+]", "[H+]"),
        ("CN(=O)=O", "C[N+](=O)[O-]"),
        ("[NH4+].[Cl-]", "[Cl-].[NH4+]"),
        ("[CH2]C", "[CH2]C"),
        ("*C", "*C"),
    ],
)
def test_a_form_has_no_stereo_isotopes_numbers_or_hydrogens_of_its_own(
    smiles: str, form: str
) -> None:
    assert canonical_form(smiles) == form
    assert canonical_form(form) == form


@pytest.mark.parametrize(
    "text",
    [
        *("", "C1CC", "C(", "C)", "cc", "c1cccc1", "CN(C)(C)(C)C", "C C", "CCO ethanol", "Ç"),
        *("C\0C", "CC |^1:0|", "C\ud800", "ethanol", "C>>C", "[Xx]"),
        "C" * (MAX_SMILES_CHARS + 1),
    ],
)
def test_what_rdkit_refuses_has_no_form(text: str) -> None:
    assert canonical_form(text) is None
    assert formula(text) is None
    assert skeleton(text) is None


@pytest.mark.parametrize(("text", "is_one"), [("CN(C)(C)(C)C", True), ("C(", False), ("", True)])
def test_syntax_is_checked_without_valences(text: str, is_one: bool) -> None:
    assert is_smiles(text or "C") == is_one


def rel_molecules(shared: Path, files: str = "*.jsonl") -> list[str]:
    found: set[str] = set()
    for path in sorted((shared / "data" / "rel" / "chemistry").glob(files)):
        for line in path.read_text().splitlines():
            answer = json.loads(line)["answer"]
            found.update(answer["molecules"], answer.get("missing_smiles", ()))
    return sorted(found)


def test_the_two_step_reading_agrees_with_rdkits_own_on_the_molecules_of_rel(shared: Path) -> None:
    shown = rel_molecules(shared)
    assert len(shown) > 5_000
    for smiles, form in canonical_forms(shown[::6]).items():
        assert form == Chem.MolToSmiles(Chem.MolFromSmiles(smiles), isomericSmiles=False)


@given(st.lists(st.sampled_from([*"CNOcn()=#[]123+-", "Cl", "[H]", "[2H]", "[nH]"])).map("".join))
def test_a_form_is_its_own_form(text: str) -> None:
    form = canonical_form(text)
    assert form is None or canonical_form(form) == form


def test_each_distinct_string_is_read_once_and_kept_in_order() -> None:
    assert canonical_forms(["OC", "C1", "OC", "CO"]) == {"OC": "CO", "C1": None, "CO": "CO"}


def test_past_a_bound_no_further_string_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(molecules, "_MAX_CHARS_AT_ONCE", 5)
    assert canonical_forms(["OC", "CCC", "OCC"]) == {"OC": "CO", "CCC": "CCC", "OCC": None}


@pytest.mark.parametrize(
    ("first", "second", "are_one"),
    [
        ("Cc1c[nH]cn1", "Cc1cnc[nH]1", True),  # hydrogens are not looked at
        ("CCO", "OCC", True),
        ("[CH2]C", "CC", False),
        ("[NH4+]", "N", False),
        ("C1=CC=C1", "C1CC1", False),
        ("CC=O", "CCO", False),
        ("C1CCC1", "C=CCC", False),
    ],
)
def test_skeletons_are_equal_where_each_is_a_substructure_of_the_other(
    first: str, second: str, are_one: bool
) -> None:
    one, two = Chem.MolFromSmiles(first), Chem.MolFromSmiles(second)
    assert (one.HasSubstructMatch(two) and two.HasSubstructMatch(one)) == are_one
    assert (skeleton(first) == skeleton(second)) == are_one


def test_skeletons_agree_with_mutual_substructures_within_a_formula(shared: Path) -> None:
    by_formula: dict[str | None, list[str]] = {}
    for smiles in rel_molecules(shared, "REL-C3.jsonl"):
        by_formula.setdefault(formula(smiles), []).append(smiles)
    universe = max(by_formula.values(), key=len)[:25]
    aromatic = [s for group in by_formula.values() for s in group if "n" in s and len(s) < 14][:25]
    for group in (universe, aromatic):
        read = [Chem.MolFromSmiles(smiles) for smiles in group]
        for one, left in zip(group, read, strict=True):
            for two, right in zip(group, read, strict=True):
                mutual = left.HasSubstructMatch(right) and right.HasSubstructMatch(left)
                assert (skeleton(one) == skeleton(two)) == mutual, (one, two)


def test_rdkits_log_is_silent_while_we_read_and_as_before_afterwards(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert canonical_form("C1CCCCCCCCCCCCN") is None
    assert formula("CN(C)(C)(C)CC") is None
    assert capfd.readouterr() == ("", "")
    Chem.MolFromSmiles("C1CCCCCCCCCCCCN")
    assert "C1CCCCCCCCCCCCN" in capfd.readouterr().err


def test_importing_the_tasks_does_not_load_rdkit() -> None:
    code = "import sys, rel_batch.tasks, rel_batch.chem; sys.exit('rdkit' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
