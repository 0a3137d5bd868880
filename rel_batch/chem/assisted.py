"""The molecules that the assisted rung `formula` leaves to choose from.

    >>> leaf = missing_isomers("C2H6O", ["CCO"])
    >>> leaf.groups
    (('COC', 'O(C)C'),)

REL-C3: the isomers of the formula that are not given, each once. REL-C2 and C4: connected
fragments of one molecule. This hands the model a part of the answer on purpose: it measures what
is left to reason when no invalid, repeated or foreign molecule can be written, and never counts
as a score.

Surprising: a molecule may be written in any of up to `NUM_SPELLINGS` spellings, not in all.
"""

# RDKit is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnnecessaryComparison=false

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import lru_cache

from rdkit import Chem, rdBase

from rel_batch.chem.molecules import canonical_form
from rel_batch.chem.universes import isomers
from rel_batch.constraints.molecules.spellings import Spellings
from rel_batch.errors import ConfigError

NUM_SPELLINGS = 60
MAX_FRAGMENTS = 400
_FRAGMENT_SPELLINGS = 6


def missing_isomers(
    formula: str,
    given: Iterable[str],
    opening: str = "",
    closing: str = "",
    separator: str = "\n",
) -> Spellings:
    """The isomers of `formula` other than `given`, each to be written at most once.

    Where all are given nothing but the empty text is admitted. Raises ConfigError for a formula
    that no molecule has, or that has too many isomers to enumerate.
    """
    universe = isomers(formula)
    if not universe:
        raise ConfigError(
            f"no molecule has the formula {formula}",
            hint="the constraint 'formula' needs a formula with isomers; check the record",
        )
    known = {canonical_form(smiles) for smiles in given}
    left = [smiles for smiles in universe if canonical_form(smiles) not in known]
    groups = tuple(spellings(smiles, NUM_SPELLINGS) for smiles in left)
    return Spellings(groups, opening, closing, separator)


def fragments_of(
    molecule: str, min_atoms: int, *, also: Sequence[str] = (), seed: int = 0
) -> Spellings:
    """One connected fragment of `molecule` with at least `min_atoms` heavy atoms.

    At most `MAX_FRAGMENTS`, grown from every atom with rings kept whole; `also` are taken in as
    well where they are fragments. Raises ConfigError where there is none.
    """
    found = _fragments(molecule, min_atoms, seed)
    parent = _read(molecule)
    for smiles in also:
        if _is_fragment(smiles, parent, min_atoms):
            found = (*found, smiles)
    forms = {Chem.MolToSmiles(_read(smiles)) for smiles in found}
    groups = tuple(spellings(smiles, _FRAGMENT_SPELLINGS) for smiles in sorted(forms))
    if not groups:
        raise ConfigError(
            f"{molecule} has no fragment of {min_atoms} atoms",
            hint="check min_motif_atoms of the record",
        )
    return Spellings(groups, most=1)


@lru_cache(maxsize=4096)
def spellings(smiles: str, number: int) -> tuple[str, ...]:
    """Distinct SMILES of one molecule: canonical, with localised bonds, and `number` at random."""
    molecule = _read(smiles)
    localised = Chem.Mol(molecule)
    Chem.Kekulize(localised, clearAromaticFlags=True)
    found = [smiles, Chem.MolToSmiles(molecule), Chem.MolToSmiles(localised, kekuleSmiles=True)]
    found += Chem.MolToRandomSmilesVect(molecule, number, randomSeed=1)
    return tuple(sorted(set(found), key=lambda text: (len(text), text)))


def _read(smiles: str) -> Chem.Mol:
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise ConfigError(f"RDKit does not read {smiles!r}", hint="check the record")
    return molecule


def _is_fragment(smiles: str, parent: Chem.Mol, min_atoms: int) -> bool:
    with rdBase.BlockLogs():
        fragment = Chem.MolFromSmiles(smiles)
    return (
        fragment is not None
        and "." not in smiles
        and fragment.GetNumHeavyAtoms() >= min_atoms
        and parent.HasSubstructMatch(fragment)
    )


@lru_cache(maxsize=256)
def _fragments(molecule: str, min_atoms: int, seed: int) -> tuple[str, ...]:
    """Fragments grown at random from each atom, a bond or a whole ring system at a time."""
    parent = _read(molecule)
    rng = random.Random(seed)
    blocks = _ring_systems(parent)
    found: set[str] = set()
    tried: set[frozenset[int]] = set()
    num_atoms = parent.GetNumAtoms()
    neighbors = [[n.GetIdx() for n in atom.GetNeighbors()] for atom in parent.GetAtoms()]
    for _ in range(4 * num_atoms):
        atoms = set(blocks[rng.randrange(num_atoms)])
        size = rng.randint(min_atoms, num_atoms) if num_atoms > min_atoms else num_atoms
        while len(found) < MAX_FRAGMENTS:
            chosen = frozenset(atoms)
            if len(atoms) >= min_atoms and chosen not in tried:
                tried.add(chosen)
                smiles = Chem.MolFragmentToSmiles(parent, atomsToUse=sorted(atoms))
                if smiles not in found and _is_fragment(smiles, parent, min_atoms):
                    found.add(smiles)
            border = sorted({n for atom in atoms for n in neighbors[atom]} - atoms)
            if not border or len(atoms) >= size:
                break
            atoms |= blocks[rng.choice(border)]
    return tuple(sorted(found))


def _ring_systems(molecule: Chem.Mol) -> list[frozenset[int]]:
    """For each atom, the atoms of its ring system; an atom outside rings is alone."""
    systems = [frozenset((atom,)) for atom in range(molecule.GetNumAtoms())]
    for ring in molecule.GetRingInfo().AtomRings():
        merged = frozenset(ring).union(*(systems[atom] for atom in ring))
        for atom in merged:
            systems[atom] = merged
    return systems
