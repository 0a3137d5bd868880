"""REL-C: each gold is verified by other means than made it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from rdkit import Chem

from rel_batch.chem.catalogue import catalogue, molecules_with
from rel_batch.chem.fragments import common_motif, contains, cut_motif, num_heavy_atoms
from rel_batch.chem.groups import CONSTRAINT_TYPES, count_groups
from rel_batch.chem.molecules import canonical_form, formula
from rel_batch.chem.universes import isomers
from rel_batch.instances.generate import common_motif as c2
from rel_batch.instances.generate import generate
from rel_batch.instances.generate import isomers as c1_c3
from rel_batch.instances.generate import motif_counts as c4
from rel_batch.instances.shortcuts import SHORTCUTS


def common_fragments(molecules: Sequence[str], min_atoms: int, min_bonds: int) -> set[str]:
    """All connected fragments, as SMILES of their own, of at least a size in every molecule.

    By listing every connected set of bonds of the first molecule: exact, slow, and nothing
    that the generator uses.
    """
    first = Chem.MolFromSmiles(min(molecules, key=num_heavy_atoms))
    found: set[str] = set()
    for num_bonds in range(min(min_atoms, min_bonds) - 1, first.GetNumBonds() + 1):
        for bonds in Chem.FindAllSubgraphsOfLengthN(first, num_bonds):
            ends = [first.GetBondWithIdx(i) for i in bonds]
            atoms = {a for bond in ends for a in (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())}
            if len(atoms) < min_atoms and num_bonds < min_bonds:
                continue
            smiles = canonical_form(Chem.MolFragmentToSmiles(first, list(atoms), list(bonds)))
            if smiles and all(contains(molecule, smiles) for molecule in molecules):
                found.add(smiles)
    return found


def test_c2_gold_is_the_only_common_motif_of_its_size_and_none_is_larger() -> None:
    checked = 0
    for record in generate("REL-C2", size=4, per_level=10, seed=5):
        molecules, gold = record["answer"]["molecules"], record["answer"]["smiles"]
        if min(map(num_heavy_atoms, molecules)) > 15:  # too many fragments to list
            continue
        num_atoms = record["metadata"]["mcs_num_atoms"]
        num_bonds = record["metadata"]["mcs_num_bonds"]
        assert num_heavy_atoms(gold) == num_atoms
        same_or_larger = {
            smiles
            for smiles in common_fragments(molecules, num_atoms, num_bonds)
            if Chem.MolFromSmiles(smiles).GetNumBonds() >= num_bonds
            or num_heavy_atoms(smiles) > num_atoms
        }
        assert same_or_larger == {gold}
        checked += 1
    assert checked >= 5


@pytest.mark.parametrize(
    ("molecules", "motif"),
    [
        (["CCCCCN", "CCCCCO", "NCCCCO"], "CCCC"),
        (["Cc1ccccc1O", "Cc1ccccc1N"], "Cc1ccccc1"),
        (["CCNCCOCC", "CCOCC", "CCNCC"], "CC"),
    ],
)
def test_a_motif_beyond_dispute_is_found(molecules: list[str], motif: str) -> None:
    found = common_motif(molecules)
    assert found is not None
    assert found.smiles == motif


@pytest.mark.parametrize(
    ("molecules", "why"),
    [
        (["OCCCCN", "OCCC(F)CCN"], "OCCCC and NCCCC are of one size"),
        (["Cc1cc[nH]n1", "Cc1ccn[nH]1"], "the ring has two tautomers, and RDKit finds both"),
        (["C1CCCCC1", "CCCCCC"], "whether a chain may be a cut ring is disputable"),
        (["CC", "NO"], "there is no common bond"),
    ],
)
def test_a_disputable_motif_is_none(molecules: list[str], why: str) -> None:
    assert common_motif(molecules) is None, why


def test_c2_golds_are_spread_over_many_motifs() -> None:
    golds = [r["answer"]["smiles"] for r in generate("REL-C2", size=5, per_level=40, seed=2)]
    assert max(Counter(golds).values()) <= 4


def test_c3_gold_completes_the_given_molecules_to_the_whole_universe() -> None:
    for record in generate("REL-C3", rc=[1, 4, 20], per_level=3, seed=1):
        given, missing = record["answer"]["molecules"], record["answer"]["missing_smiles"]
        (name,) = {formula(smiles) for smiles in given + missing}
        assert name == record["metadata"]["formula"]
        assert sorted(given + missing) == list(isomers(name))
        assert len(given + missing) == record["metadata"]["universe_size"]


def test_c1_labels_follow_from_the_formulas_alone() -> None:
    for record in generate("REL-C1", size=7, per_level=30, seed=9):
        molecules = record["answer"]["molecules"]
        formulas = Counter(map(formula, molecules))
        assert len(set(map(canonical_form, molecules))) == 7
        if record["answer"]["label"] == "Yes":
            assert len(formulas) == 1
        else:
            assert sorted(formulas.values()) == [1, 6]


def test_c1_outliers_mostly_differ_in_hydrogens_only() -> None:
    records = list(generate("REL-C1", size=5, per_level=200, seed=9))
    kinds = Counter(
        record["metadata"]["certificate"]["outlier_differs_in"]
        for record in records
        if record["answer"]["label"] == "No"
    )
    assert kinds["hydrogens"] > 70
    assert kinds["element"] >= 5
    assert kinds["size"] >= 5
    (heavy_atoms,) = (s for s in SHORTCUTS["REL-C1"] if s.name == "same heavy atoms")
    right = sum(
        heavy_atoms.reply(record, Random(0)) == f"<{record['answer']['label']}>"
        for record in records
    )
    assert right / len(records) < 0.65  # 98.5% on the released file


def test_c4_gold_is_one_motif_of_each_molecule_and_reaches_the_target() -> None:
    for record in generate("REL-C4", rc=[2, 6], per_level=5, seed=3):
        molecules, motifs = record["answer"]["molecules"], record["answer"]["selected_motifs"]
        metadata = record["metadata"]
        values = [
            count_groups(metadata["constraint_type"], motifs[str(i)]) for i in range(len(molecules))
        ]
        assert values == metadata["values"] == metadata["certificate"]["motif_values"]
        assert sum(values) == metadata["target_value"] > 0
        for i, molecule in enumerate(molecules):
            assert contains(molecule, motifs[str(i)])
            assert "." not in motifs[str(i)]
            assert num_heavy_atoms(motifs[str(i)]) >= metadata["min_motif_atoms"]


@pytest.mark.parametrize(
    ("constraint_type", "smiles", "count"),
    [
        ("total_aromatic_rings", "c1ccc2ccccc2c1", 2),
        ("total_aromatic_rings", "C1CCCCC1", 0),
        ("total_carboxylic_acids", "OC(=O)CC(=O)OC", 1),
        ("total_alcohols", "OCC(O)c1ccc(O)cc1", 2),
        ("total_primary_amines", "NCC(N)C(N)=O", 2),
        ("total_ketones", "CC(=O)CC(C)=O", 2),
        ("total_ketones", "CC=O", 0),
    ],
)
def test_groups_are_counted_by_centre(constraint_type: str, smiles: str, count: int) -> None:
    assert constraint_type in CONSTRAINT_TYPES
    assert count_groups(constraint_type, smiles) == count


def test_cut_motifs_are_fragments_with_whole_rings() -> None:
    rng = Random(1)
    for smiles in rng.sample(catalogue(), 60):
        motif = cut_motif(smiles, 6, 20, rng)
        if motif is not None:
            assert contains(smiles, motif)
            assert 6 <= num_heavy_atoms(motif) <= 20
            assert smiles in molecules_with(motif)


def test_the_catalogue_is_distinct_and_canonical() -> None:
    molecules = catalogue()
    assert len(molecules) > 3_000
    assert list(molecules) == sorted(set(molecules))
    assert all(canonical_form(smiles) == smiles for smiles in molecules[::50])


def test_prompts_are_those_of_the_released_files(shared: Path) -> None:
    def records(name: str) -> list[dict]:
        return [json.loads(line) for line in (shared / "data" / name).read_text().splitlines()]

    for record in records("rel/chemistry/REL-C1.jsonl"):
        molecules = record["answer"]["molecules"]
        assert c1_c3.render_c1(molecules) == record["question"]
    for record in records("rel/chemistry/REL-C2.jsonl"):
        assert c2.render_question(record["answer"]["molecules"]) == record["question"]
    for record in records("rel/chemistry/REL-C3.jsonl"):
        assert c1_c3.render_c3(record["answer"]["molecules"]) == record["question"]
    for record in records("regenerated/REL-C4.jsonl"):
        kind, target = (record["metadata"][k] for k in ("constraint_type", "target_value"))
        molecules = record["answer"]["molecules"]
        assert c4.render_question(molecules, kind, target) == record["question"]
