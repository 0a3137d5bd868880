"""Reads SMILES with RDKit: which molecule a string denotes, in bounded time and memory.

    >>> canonical_form("C1=CC=CC=C1O"), canonical_form("[2H]OCC"), canonical_form("C1CC")
    ('Oc1ccccc1', 'CCO', None)

Two strings denote one molecule where their canonical forms are equal. A form has no stereo, no
isotopes, no atom numbers and no hydrogens of its own; aromaticity is RDKit's, so that Kekule
spellings agree.

Surprising: a string of more than `MAX_SMILES_CHARS` characters is refused unread. REL's longest
has 119, and within the bound RDKit takes at most some 50 ms whatever the string says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from rdkit import Chem, rdBase
from rdkit.Chem import rdMolDescriptors

# RDKit's own type stubs are partial: what they do not know is looked up through these.
_chem: Any = Chem
_descriptors: Any = rdMolDescriptors

MAX_SMILES_CHARS = 1_000
# What `canonical_forms` reads of one reply: thirty times the longest gold reply of REL-C3.
_MAX_CHARS_AT_ONCE = 50_000

_PRINTABLE = re.compile(r"[!-~]+")
# An isotope, an atom number, or a hydrogen that is an atom of its own.
_LABEL = re.compile(r"\[[0-9]|:[0-9]+\]|\[H")


def canonical_form(smiles: str) -> str | None:
    """The canonical form of the molecule, or None where RDKit refuses the string."""
    return canonical_forms((smiles,))[smiles]


def canonical_forms(smiles: Iterable[str]) -> dict[str, str | None]:
    """The canonical form of each distinct string, in order; None where RDKit refuses it.

    Past 50,000 characters in total no further string is read: each is taken as refused.
    """
    forms: dict[str, str | None] = {}
    left = _MAX_CHARS_AT_ONCE
    with rdBase.BlockLogs():
        for text in smiles:
            if text not in forms:
                left -= len(text)
                forms[text] = _canonical(text) if left >= 0 else None
    return forms


@lru_cache(maxsize=4_096)
def formula(smiles: str) -> str | None:
    """The molecular formula (Hill order, with the charge), or None where RDKit refuses it."""
    molecule = parse_molecule(smiles)
    return None if molecule is None else _descriptors.CalcMolFormula(molecule)


@lru_cache(maxsize=32_768)
def is_smiles(text: str) -> bool:
    """Whether the string is SMILES by syntax alone; a tenth of the cost of reading the molecule."""
    if len(text) > MAX_SMILES_CHARS or not _PRINTABLE.fullmatch(text):
        return False
    with rdBase.BlockLogs():
        return _chem.MolFromSmiles(text, sanitize=False) is not None


@lru_cache(maxsize=4_096)
def skeleton(smiles: str) -> str | None:
    """What is left of a molecule when hydrogens are not looked at; None where RDKit refuses it.

    Two molecules have equal skeletons where RDKit finds each as a substructure of the other.
    Prototropic forms of one ring (4- and 5-methylimidazole) have one skeleton.
    """
    molecule = parse_molecule(smiles)
    if molecule is None:
        return None
    radicals = sorted(filter(None, (a.GetNumRadicalElectrons() for a in molecule.GetAtoms())))
    for atom in molecule.GetAtoms():
        atom.SetNumExplicitHs(0)
        atom.SetNoImplicit(True)
        atom.SetNumRadicalElectrons(0)
    molecule.ClearComputedProps(includeRings=False)
    molecule.UpdatePropertyCache(strict=False)
    return f"{_chem.MolToSmiles(molecule, isomericSmiles=False)} {radicals}"


def parse_molecule(smiles: str) -> Chem.Mol | None:
    """The molecule without isotopes, atom numbers and explicit hydrogens.

    None where RDKit refuses the string. The molecule is the caller's own.
    """
    with rdBase.BlockLogs():
        return _parse(smiles)


# The callers below this line have silenced RDKit's log, which is one for the whole process:
# `BlockLogs` silences it for as long as it takes to read what they were given, and no longer.


@lru_cache(maxsize=32_768)
def _canonical(smiles: str) -> str | None:
    molecule = _parse(smiles)
    return None if molecule is None else _chem.MolToSmiles(molecule, isomericSmiles=False)


def _parse(smiles: str) -> Chem.Mol | None:
    if len(smiles) > MAX_SMILES_CHARS or not _PRINTABLE.fullmatch(smiles):
        return None
    # Parsing and sanitising in two steps leaves out the perception of stereo: a third of the time.
    molecule: Chem.Mol | None = _chem.MolFromSmiles(smiles, sanitize=False)
    if molecule is None or _chem.SanitizeMol(molecule, catchErrors=True):
        return None
    return _without_labels(molecule) if "[" in smiles and _LABEL.search(smiles) else molecule


def _without_labels(molecule: Chem.Mol) -> Chem.Mol:
    for atom in molecule.GetAtoms():
        atom.SetIsotope(0)
        atom.SetAtomMapNum(0)
    bare: Chem.Mol = _chem.RemoveAllHs(molecule, sanitize=False)
    # Hydrogen itself has nothing else to hold on to.
    failed = not bare.GetNumAtoms() or _chem.SanitizeMol(bare, catchErrors=True)
    return molecule if failed else bare
