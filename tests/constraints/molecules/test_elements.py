"""The valences are RDKit's, element by element and charge by charge."""

from __future__ import annotations

import pytest
from rdkit import Chem, rdBase

from rel_batch.constraints.molecules.elements import SYMBOLS, VALENCES
from rel_batch.constraints.molecules.valences import max_valence

TABLE = Chem.GetPeriodicTable()


def test_every_element_has_the_valences_of_rdkit() -> None:
    rdkit = {TABLE.GetElementSymbol(z): tuple(TABLE.GetValenceList(z)) for z in range(1, 119)}
    assert dict(zip(SYMBOLS[1:], VALENCES[1:], strict=True)) == rdkit


def _sanitizes(element: int, charge: int, bonds: int) -> bool:
    molecule = Chem.RWMol()
    atom = Chem.Atom(element)
    atom.SetFormalCharge(charge)
    atom.SetNoImplicit(True)
    molecule.AddAtom(atom)
    for i in range(bonds):
        molecule.AddAtom(Chem.Atom(6))
        molecule.AddBond(0, i + 1, Chem.BondType.SINGLE)
    with rdBase.BlockLogs():
        return Chem.SanitizeMol(molecule, catchErrors=True) == Chem.SANITIZE_NONE


@pytest.mark.parametrize("element", range(1, 119), ids=SYMBOLS[1:])
def test_an_atom_takes_as_many_bonds_as_in_rdkit_and_hydrogen_never_more(element: int) -> None:
    for charge in range(-3, 4):
        most = max_valence(element, charge)
        taken = [n for n in range(9) if _sanitizes(element, charge, n)]
        if element == 1 or most < 0:  # refused more often than RDKit refuses them
            assert most <= max(taken, default=-1)
        else:
            assert max(taken, default=-1) == min(most, 8), f"charge {charge:+d}"
