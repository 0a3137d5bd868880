"""How many functional groups of a kind a molecule has, by the SMARTS that REL-C4 counts with.

>>> count_groups("total_ketones", "CC(=O)CC(C)=O")
2
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rdkit import Chem
from rdkit.Chem import rdMolDescriptors

_chem: Any = Chem  # rdkit's type stubs are partial
_descriptors: Any = rdMolDescriptors

AROMATIC_RINGS = "total_aromatic_rings"
# The group, and which atom of a match is its centre: groups are counted by distinct centres.
_GROUPS = {
    "total_carboxylic_acids": ("[CX3](=[OX1])[OX2H1]", 0),
    "total_alcohols": ("[OX2H1][CX4]", 0),
    "total_primary_amines": ("[NX3H2;!$(N-[C,S,P]=[O,S,N])][#6]", 0),
    "total_ketones": ("[#6][CX3](=[OX1])[#6]", 1),
}
_RDKIT_NAMES = {
    "total_carboxylic_acids": "fr_COO",
    "total_alcohols": "fr_Al_OH",
    "total_primary_amines": "fr_NH2",
    "total_ketones": "fr_ketone",
}
CONSTRAINT_TYPES = (AROMATIC_RINGS, *_GROUPS)


@lru_cache(maxsize=16_384)
def count_groups(constraint_type: str, smiles: str) -> int:
    """The number of groups (or aromatic rings) in a valid SMILES."""
    molecule = _chem.MolFromSmiles(smiles)
    if constraint_type == AROMATIC_RINGS:
        return int(_descriptors.CalcNumAromaticRings(molecule))
    smarts, centre = _GROUPS[constraint_type]
    matches = molecule.GetSubstructMatches(_query(smarts), uniquify=False, maxMatches=10_000)
    return len({match[centre] for match in matches})


@lru_cache(maxsize=16_384)
def count_by_rdkit(constraint_type: str, smiles: str) -> int:
    """The same by the definitions that RDKit ships (`rdkit.Chem.Fragments`), which differ.

    >>> amines, amide = "total_primary_amines", "CC(N)=O"
    >>> count_groups(amines, amide), count_by_rdkit(amines, amide)
    (0, 1)
    """
    from rdkit.Chem import Fragments  # reads a file of 85 patterns

    if constraint_type == AROMATIC_RINGS:
        return count_groups(constraint_type, smiles)
    count: Any = getattr(Fragments, _RDKIT_NAMES[constraint_type])
    return int(count(_chem.MolFromSmiles(smiles)))


@lru_cache(maxsize=len(_GROUPS))
def _query(smarts: str) -> Chem.Mol:
    return _chem.MolFromSmarts(smarts)
