"""Fragments of molecules: cutting one out, finding it again, and the largest that many share.

    >>> common_motif(["CCOc1ccccc1", "COc1ccccc1C", "Cc1ccccc1OCC"]).smiles
    'COc1ccccc1'

A motif is a connected fragment written as a SMILES of its own, its open valences filled with
hydrogen. It is in a molecule if RDKit matches it as a substructure there. Rings are never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from rdkit import Chem, rdBase
from rdkit.Chem import rdFMCS

from rel_batch.errors import RelBatchError

_chem: Any = Chem  # rdkit's type stubs are partial
_fmcs: Any = rdFMCS

# A bound on one search, so that nothing hangs. It is an error to reach it, not a result: what
# is generated must not depend on the speed of the machine.
_SEARCH_S = 120


@dataclass(frozen=True, slots=True)
class Motif:
    smiles: str
    num_atoms: int
    num_bonds: int


@lru_cache(maxsize=50_000)
def _parse(smiles: str) -> Chem.Mol | None:
    with rdBase.BlockLogs():
        return _chem.MolFromSmiles(smiles)


def num_heavy_atoms(smiles: str) -> int:
    """Heavy atoms of a valid SMILES."""
    molecule = _parse(smiles)
    assert molecule is not None
    return molecule.GetNumHeavyAtoms()


def contains(smiles: str, motif: str) -> bool:
    """Whether the motif is a substructure of the molecule; False where either does not parse."""
    molecule, query = _parse(smiles), _parse(motif)
    return molecule is not None and query is not None and molecule.HasSubstructMatch(query)


def cut_motif(smiles: str, min_atoms: int, max_atoms: int, rng: Random) -> str | None:
    """A random fragment of min_atoms..max_atoms heavy atoms, by cutting one to three bonds.

    Only single bonds outside rings are cut. None where the cuts drawn leave no such fragment.
    """
    molecule = _parse(smiles)
    assert molecule is not None
    cuttable = [
        bond.GetIdx()
        for bond in molecule.GetBonds()
        if bond.GetBondType() == _chem.BondType.SINGLE and not bond.IsInRing()
    ]
    if not cuttable:
        return None
    cuts = rng.sample(cuttable, min(len(cuttable), rng.choice([1, 1, 2, 2, 3])))
    pieces = _chem.FragmentOnBonds(molecule, cuts, addDummies=False)
    motifs = sorted(
        {
            motif
            for motif in _chem.MolToSmiles(pieces).split(".")
            if _parse(motif) is not None
            and min_atoms <= num_heavy_atoms(motif) <= max_atoms
            and contains(smiles, motif)
        }
    )
    if not motifs:
        return None
    return _chem.CanonSmiles(rng.choice(motifs))


def common_motif(molecules: Sequence[str]) -> Motif | None:
    """The largest common motif, where it is one beyond dispute; None where it is not.

    Beyond dispute: the motif with the most atoms is also the one with the most bonds, no other
    of its size is in every molecule, and allowing cut rings finds no larger one.
    """
    parsed = [_parse(smiles) for smiles in molecules]
    found = _search(parsed, maximize_bonds=True, whole_rings=True)
    if len(found) != 1:
        return None
    for maximize_bonds, whole_rings in ((False, True), (True, False), (False, False)):
        if _search(parsed, maximize_bonds=maximize_bonds, whole_rings=whole_rings) != found:
            return None
    (motif,) = found
    if not all(contains(smiles, motif.smiles) for smiles in molecules):
        return None
    return None if _has_other_tautomer(motif.smiles) else motif


def _has_other_tautomer(smiles: str) -> bool:
    """Whether moving the hydrogen of an [nH] gives another SMILES of the same skeleton.

    RDKit matches both in the same molecules, since a query's hydrogens do not count.
    """
    molecule = _parse(smiles)
    assert molecule is not None
    nitrogens = [atom for atom in molecule.GetAtoms() if atom.GetSmarts() in ("n", "[nH]")]
    for donor in nitrogens:
        for acceptor in nitrogens:
            if donor.GetTotalNumHs() and not acceptor.GetTotalNumHs():
                moved = _chem.RWMol(molecule)
                moved.GetAtomWithIdx(donor.GetIdx()).SetNumExplicitHs(0)
                moved.GetAtomWithIdx(acceptor.GetIdx()).SetNumExplicitHs(1)
                other = _parse(_chem.MolToSmiles(moved))
                if other is not None and _chem.MolToSmiles(other) != smiles:
                    return True
    return False


def _search(
    molecules: Sequence[Chem.Mol | None], *, maximize_bonds: bool, whole_rings: bool
) -> frozenset[Motif]:
    """All largest common fragments under one notion of large, cut out of the first molecule."""
    parameters = _fmcs.MCSParameters()
    parameters.MaximizeBonds = maximize_bonds
    parameters.StoreAll = True
    parameters.Timeout = _SEARCH_S
    parameters.BondCompareParameters.RingMatchesRingOnly = whole_rings
    parameters.BondCompareParameters.CompleteRingsOnly = whole_rings
    result = _fmcs.FindMCS(list(molecules), parameters)
    if result.canceled:
        raise RelBatchError(
            f"the search for a common motif of {len(molecules)} molecules took over {_SEARCH_S} s",
            hint="use another seed, or fewer molecules",
        )
    queries = list(result.degenerateSmartsQueryMolDict.values()) or [result.queryMol]
    first = molecules[0]
    assert first is not None
    return frozenset(_cut_out(first, query) for query in queries if query is not None)


def _cut_out(molecule: Chem.Mol, query: Chem.Mol) -> Motif:
    atoms = molecule.GetSubstructMatch(query)
    bonds = [
        molecule.GetBondBetweenAtoms(
            atoms[bond.GetBeginAtomIdx()], atoms[bond.GetEndAtomIdx()]
        ).GetIdx()
        for bond in query.GetBonds()
    ]
    smiles = _chem.MolFragmentToSmiles(molecule, atoms, bonds)
    parsed = _parse(smiles)
    canonical = smiles if parsed is None else _chem.MolToSmiles(parsed)
    return Motif(canonical, len(atoms), len(bonds))
