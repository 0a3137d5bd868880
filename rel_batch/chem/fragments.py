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
# The same for molecules that are given, where to give up is a result, and said: by steps and not by
# seconds, so that it does not depend on the machine either. Some 1.5 s of processor time.
MAX_STEPS = 12_000
# REL's molecules have up to 9 independent rings.
MAX_RINGS = 12


@dataclass(frozen=True, slots=True)
class Motif:
    smiles: str
    num_atoms: int
    num_bonds: int


@dataclass(frozen=True, slots=True)
class LargestMotifs:
    """The size of the largest motif that several molecules share, under both notions of large.

    Attributes:
        most_bonds: bonds, then atoms, of the common fragment with the most bonds.
        most_atoms: atoms, then bonds, of the common fragment with the most atoms that was found;
            one with more may exist, since RDKit's search leaves branches by their bonds.
        motifs: common fragments with many bonds that are molecules of their own.
        is_proven: whether no fragment has more bonds than `most_bonds` says.
        has_all: whether `motifs` are all those with the most bonds.
    """

    most_bonds: tuple[int, int]
    most_atoms: tuple[int, int]
    motifs: frozenset[str]
    is_proven: bool
    has_all: bool

    def reached_by(self, smiles: str) -> bool:
        """Whether a valid SMILES is as large as the largest, by bonds or by atoms."""
        atoms, bonds = size_of(smiles)
        return (bonds, atoms) >= self.most_bonds or (atoms, bonds) >= self.most_atoms


@lru_cache(maxsize=50_000)
def _parse(smiles: str) -> Chem.Mol | None:
    with rdBase.BlockLogs():
        return _chem.MolFromSmiles(smiles)


def num_heavy_atoms(smiles: str) -> int:
    """Heavy atoms of a valid SMILES."""
    molecule = _parse(smiles)
    assert molecule is not None
    return molecule.GetNumHeavyAtoms()


def size_of(smiles: str) -> tuple[int, int]:
    """Atoms and bonds of a valid SMILES."""
    molecule = _parse(smiles)
    assert molecule is not None
    return molecule.GetNumAtoms(), molecule.GetNumBonds()


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


@lru_cache(maxsize=1_024)
def largest_motifs(molecules: tuple[str, ...], max_steps: int = MAX_STEPS) -> LargestMotifs | None:
    """The largest common motifs of SMILES, by three searches of `max_steps` at most.

    A ring may be cut, as REL-C2's golds do it. None where a SMILES is not valid or has too many
    rings: a single step of the search, which nothing can stop, may then take minutes.
    """
    parsed = [_parse(smiles) for smiles in molecules]
    if not parsed or any(
        molecule is None or _num_rings(molecule) > MAX_RINGS for molecule in parsed
    ):
        return None
    every, by_atoms = (
        _find(parsed, maximize_bonds=bonds, whole_rings=False, every=bonds, max_steps=max_steps)
        for bonds in (True, False)
    )
    # To find one of the largest, and no others of its size, takes a tenth of the steps.
    by_bonds = (
        _find(parsed, maximize_bonds=True, whole_rings=False, every=False, max_steps=max_steps)
        if every.canceled
        else every
    )
    return LargestMotifs(
        most_bonds=(by_bonds.numBonds, by_bonds.numAtoms),
        most_atoms=(by_atoms.numAtoms, by_atoms.numBonds),
        motifs=frozenset(
            motif.smiles
            for motif in _motifs(parsed, every)
            if _parse(motif.smiles) is not None
            and all(contains(smiles, motif.smiles) for smiles in molecules)
        ),
        is_proven=not by_bonds.canceled,
        has_all=not every.canceled,
    )


def _num_rings(molecule: Chem.Mol) -> int:
    return molecule.GetNumBonds() - molecule.GetNumAtoms() + 1


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
    result = _find(molecules, maximize_bonds=maximize_bonds, whole_rings=whole_rings, every=True)
    if result.canceled:
        raise RelBatchError(
            f"the search for a common motif of {len(molecules)} molecules took over {_SEARCH_S} s",
            hint="use another seed, or fewer molecules",
        )
    return _motifs(molecules, result)


class _Steps(_fmcs.MCSProgress):
    """Ends a search after a number of steps."""

    def __init__(self, most: int) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._left = most

    def __call__(self, stat: Any, parameters: Any) -> bool:
        del stat, parameters
        self._left -= 1
        return self._left > 0


def _find(
    molecules: Sequence[Chem.Mol | None],
    *,
    maximize_bonds: bool,
    whole_rings: bool,
    every: bool,
    max_steps: int | None = None,
) -> Any:
    parameters = _fmcs.MCSParameters()
    parameters.MaximizeBonds = maximize_bonds
    parameters.StoreAll = every
    parameters.Timeout = _SEARCH_S
    if max_steps is not None:
        parameters.ProgressCallback = _Steps(max_steps)
    parameters.BondCompareParameters.RingMatchesRingOnly = whole_rings
    parameters.BondCompareParameters.CompleteRingsOnly = whole_rings
    with rdBase.BlockLogs():
        return _fmcs.FindMCS(list(molecules), parameters)


def _motifs(molecules: Sequence[Chem.Mol | None], result: Any) -> frozenset[Motif]:
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
