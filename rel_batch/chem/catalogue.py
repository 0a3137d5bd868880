"""Real molecules to draw from, out of the lists that every rdkit wheel ships.

The first 5,000 structures of the NCI open database and the series CHEMBL2321810. Kept are
neutral, connected molecules of common elements and middling size, without stereo.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rdkit import Chem, RDConfig, rdBase

from rel_batch.errors import DataError

MIN_ATOMS, MAX_ATOMS = 10, 32
_ELEMENTS = {"C", "N", "O", "S", "F", "Cl", "Br"}


@lru_cache(maxsize=1)
def catalogue() -> tuple[str, ...]:
    """Distinct canonical SMILES, sorted. Raises DataError where rdkit's data are not installed."""
    found: set[str] = set()
    with rdBase.BlockLogs():
        for path in _lists():
            for line in path.read_text(encoding="ascii").splitlines():
                smiles = _usable(line.split()[0]) if line.strip() else None
                if smiles is not None:
                    found.add(smiles)
    return tuple(sorted(found))


def _lists() -> list[Path]:
    paths = [
        Path(RDConfig.RDDataDir, "NCI", "first_5K.smi"),
        Path(RDConfig.RDContribDir, "FreeWilson", "data", "CHEMBL2321810.smi"),
    ]
    for path in paths:
        if not path.is_file():
            raise DataError(
                f"{path} does not exist, though rdkit's wheels contain it",
                hint="install rdkit from PyPI: pip install --force-reinstall rdkit",
            )
    return paths


def _usable(smiles: str) -> str | None:
    if "." in smiles:
        return None
    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or not MIN_ATOMS <= molecule.GetNumHeavyAtoms() <= MAX_ATOMS:
        return None
    for atom in molecule.GetAtoms():
        if atom.GetSymbol() not in _ELEMENTS or atom.GetFormalCharge() or atom.GetIsotope():
            return None
    Chem.RemoveStereochemistry(molecule)
    return Chem.MolToSmiles(molecule)
