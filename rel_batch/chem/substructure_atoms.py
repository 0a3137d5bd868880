"""How the atoms of a part of a molecule are written, and which of them are aromatic together."""

from __future__ import annotations

import re
from functools import lru_cache

from rel_batch.chem.molecules import parse_molecule

BRACKET = re.compile(r"\[([A-Za-z][a-z]?)(?:H([0-9]?))?([+-][0-9]?)?\]")
_ORGANIC = ("B", "C", "N", "O", "P", "S", "F", "Cl", "Br", "I", "b", "c", "n", "o", "p", "s")
_MAX_HYDROGENS = 4


def variants(atom: str) -> tuple[str, ...]:
    """The ways to write an atom whose bonds may be cut, the molecule's own first."""
    if atom in ("n", "[nH]"):
        return ("n", "[nH]") if atom == "n" else ("[nH]", "n")
    # Where bonds are cut, sulfur and phosphorus may need hydrogens beyond their lowest valence.
    match = BRACKET.fullmatch(f"[{atom}]" if atom in ("S", "P") else atom)
    if match is None:
        return (atom,)
    symbol, _, charge = match.groups()
    ways = [bracket(symbol, number, charge) for number in range(_MAX_HYDROGENS + 1)]
    if symbol in _ORGANIC:
        ways.append(symbol)
    return tuple(dict.fromkeys((atom, *ways)))


def num_hydrogens(match: re.Match[str]) -> int:
    """Hydrogens in what `BRACKET` matched."""
    return 0 if match[2] is None else int(match[2] or 1)


def bracket(symbol: str, hydrogens: int, charge: str | None) -> str:
    """An atom in brackets."""
    number = "" if hydrogens < 2 else str(hydrogens)
    return f"[{symbol}{'H' if hydrogens else ''}{number}{charge or ''}]"


@lru_cache(maxsize=256)
def aromatic_rings(smiles: str) -> tuple[int, ...]:
    """The atoms of each aromatic ring, as bits."""
    molecule = parse_molecule(smiles)
    if molecule is None:
        return ()
    rings = zip(molecule.GetRingInfo().AtomRings(), molecule.GetRingInfo().BondRings(), strict=True)
    return tuple(
        sum(1 << atom for atom in atoms)
        for atoms, bonds in rings
        if all(molecule.GetBondWithIdx(bond).GetIsAromatic() for bond in bonds)
    )


def ring_systems(rings: tuple[int, ...]) -> tuple[int, ...]:
    """Rings that share an atom, taken together."""
    systems: list[int] = []
    for ring in rings:
        apart = [system for system in systems if not system & ring]
        merged = ring
        for system in systems:
            merged |= system if system & ring else 0
        systems = [*apart, merged]
    return tuple(systems)
