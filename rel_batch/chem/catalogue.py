"""Real molecules to draw from, out of the lists that every rdkit wheel ships.

The first 5,000 structures of the NCI open database and the series CHEMBL2321810. Kept are
neutral, connected molecules of common elements and middling size, without stereo.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from rdkit import Chem, RDConfig, rdBase
from rdkit.Chem import rdSubstructLibrary

from rel_batch.errors import DataError

_chem: Any = Chem  # rdkit's type stubs are partial
_library: Any = rdSubstructLibrary

MIN_ATOMS, MAX_ATOMS = 10, 32
_ELEMENTS = {"C", "N", "O", "S", "F", "Cl", "Br"}


@lru_cache(maxsize=4)
def catalogue(max_atoms: int = MAX_ATOMS) -> tuple[str, ...]:
    """Distinct canonical SMILES of up to max_atoms heavy atoms, sorted.

    Raises DataError where rdkit's data are not installed.
    """
    return tuple(s for s, mol in _molecules().items() if mol.GetNumHeavyAtoms() <= max_atoms)


def molecules_with(motif: str, max_atoms: int = MAX_ATOMS) -> list[str]:
    """The molecules of the catalogue that contain a motif (a valid SMILES), in order."""
    library = _library_of(max_atoms)
    matches = library.GetMatches(_chem.MolFromSmiles(motif), numThreads=1, maxResults=-1)
    return [catalogue(max_atoms)[i] for i in sorted(matches)]


@lru_cache(maxsize=4)
def _library_of(max_atoms: int) -> Any:
    library = _library.SubstructLibrary(_library.MolHolder(), _library.PatternHolder())
    for smiles in catalogue(max_atoms):
        library.AddMol(_molecules()[smiles])
    return library


@lru_cache(maxsize=1)
def _molecules() -> dict[str, Any]:
    """Each molecule by its SMILES, in the order of these."""
    found: dict[str, Any] = {}
    with rdBase.BlockLogs():
        for path in _lists():
            for line in path.read_text(encoding="ascii").splitlines():
                molecule = _read_usable(line.split()[0]) if line.strip() else None
                if molecule is not None:
                    found[_chem.MolToSmiles(molecule)] = molecule
    return dict(sorted(found.items()))


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


def _read_usable(smiles: str) -> Any:
    """The molecule without stereo, or None where it is not one for the catalogue."""
    if "." in smiles:
        return None
    molecule = _chem.MolFromSmiles(smiles)
    if molecule is None or not MIN_ATOMS <= molecule.GetNumHeavyAtoms() <= MAX_ATOMS:
        return None
    for atom in molecule.GetAtoms():
        if atom.GetSymbol() not in _ELEMENTS or atom.GetFormalCharge() or atom.GetIsotope():
            return None
    _chem.RemoveStereochemistry(molecule)
    return molecule
