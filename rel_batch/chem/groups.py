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


@lru_cache(maxsize=len(_GROUPS))
def _query(smarts: str) -> Chem.Mol:
    return _chem.MolFromSmarts(smarts)
