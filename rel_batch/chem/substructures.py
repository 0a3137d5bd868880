"""Is one molecule a fragment of another, and how much do two share: both bounded.

    >>> is_in("CCO", "CCOC"), is_in("CCN", "CCOC"), shared_fraction("CCO", "CCOC")
    (True, False, 0.75)

A motif is in a molecule as RDKit's `HasSubstructMatch` has it: element, bond order and aromatic
bonds must agree, and a charge where the motif has one; hydrogens are not looked at. What RDKit
refuses has no atoms and no motif in it.

Surprising: a search may end undecided. It is bounded by steps and not by seconds, so that the
answer does not depend on the machine: of REL-C4's motifs none takes more than 400.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rdkit import Chem, rdBase
from rdkit.Chem import rdFMCS

from rel_batch.chem.molecules import parse_molecule

_MAX_STEPS = 50_000  # some 0.1 s
# Molecules of more independent rings are not compared: a single step of the search for the largest
# common substructure, which nothing can stop, may then take minutes. REL's molecules have up to 9.
_MAX_RINGS = 12

_fmcs: Any = rdFMCS  # its type stubs are partial


class _OutOfStepsError(Exception):
    pass


def num_heavy_atoms(smiles: str) -> int:
    """Atoms other than hydrogen (and other than the wildcard `*`)."""
    return _read(smiles).GetNumHeavyAtoms()


def is_in(motif: str, molecule: str) -> bool | None:
    """Whether the motif is a substructure of the molecule; None where the search was given up."""
    return _is_in(_read(motif), _read(molecule))


def shared_fraction(first: str, second: str, timeout_s: int = 5) -> float | None:
    """Heavy atoms of the largest common substructure over those of the larger molecule.

    Where the search takes longer than `timeout_s` seconds, of the largest one found by then. None
    where a molecule has too many rings to search. Source: the reference evaluator's overlap.
    """
    smaller, larger = sorted((_read(first), _read(second)), key=Chem.Mol.GetNumHeavyAtoms)
    size = larger.GetNumHeavyAtoms()
    if not size:
        return 0.0
    if _is_in(smaller, larger):
        return smaller.GetNumHeavyAtoms() / size
    if max(_num_rings(smaller), _num_rings(larger)) > _MAX_RINGS:
        return None
    with rdBase.BlockLogs():
        return _fmcs.FindMCS([smaller, larger], timeout=timeout_s).numAtoms / size


def _num_rings(molecule: Chem.Mol) -> int:
    return molecule.GetNumBonds() - molecule.GetNumAtoms() + 1


def _is_in(motif: Chem.Mol, molecule: Chem.Mol) -> bool | None:
    if not 0 < motif.GetNumAtoms() <= molecule.GetNumAtoms():
        return False
    steps = 0

    def count_step(_motif_atom: Chem.Atom, _molecule_atom: Chem.Atom) -> bool:
        nonlocal steps
        steps += 1
        if steps > _MAX_STEPS:
            raise _OutOfStepsError
        return True

    parameters = Chem.SubstructMatchParameters()
    parameters.maxMatches = 1
    parameters.setExtraAtomCheckFunc(count_step)
    try:
        return molecule.HasSubstructMatch(motif, parameters)
    except _OutOfStepsError:
        return None


@lru_cache(maxsize=1_024)
def _read(smiles: str) -> Chem.Mol:
    return parse_molecule(smiles) or Chem.Mol()
