"""Every constitutional isomer of a molecular formula, enumerated.

    >>> isomers("C4H10")
    ('CC(C)C', 'CCCC')

What counts as an isomer: a connected, neutral, closed-shell molecular graph in which each atom
has exactly its usual valence (C 4, N 3, O and S 2, H and halogens 1) and bonds are single,
double or triple. Stereo is ignored; strained rings, cumulenes, allenes in rings and peroxides
are all in. Two graphs are one isomer if RDKit gives them one canonical SMILES, so the Kekule
forms of an aromatic ring count once. These are the rules of the universes behind REL-C3.

The method: all trees of heavy atoms joined by single bonds, grown atom by atom; then one more
bond at a time (a bond order raised, or a ring closed) until the hydrogens are those of the
formula. Every graph has a spanning tree, so nothing is missed; each stage keeps one state per
canonical SMILES.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from rdkit import Chem, rdBase

from rel_batch.errors import ConfigError

_chem: Any = Chem  # rdkit's type stubs are partial

VALENCES = {"C": 4, "N": 3, "O": 2, "S": 2, "F": 1, "Cl": 1, "Br": 1, "I": 1}
MAX_HEAVY_ATOMS = 10
# The largest stage that is worked through: about half a minute of enumeration.
MAX_STATES = 50_000

_BOND_TYPES: dict[int, Any] = {
    1: _chem.BondType.SINGLE,
    2: _chem.BondType.DOUBLE,
    3: _chem.BondType.TRIPLE,
}
_TERM = re.compile(r"([A-Z][a-z]?)(\d*)")

# Heavy atoms, and the order of the bond between each joined pair (i < j).
_Graph = tuple[tuple[str, ...], dict[tuple[int, int], int]]


def parse_formula(formula: str) -> dict[str, int] | None:
    """Element counts of a formula such as "C4H8O2"; None where it is not one.

    >>> parse_formula("C2H6O")
    {'C': 2, 'H': 6, 'O': 1}
    """
    if not formula or len(formula) > 40 or not re.fullmatch(f"({_TERM.pattern})+", formula):
        return None
    counts: Counter[str] = Counter()
    for element, number in _TERM.findall(formula):
        counts[element] += int(number or "1")
    return dict(counts)


def render_formula(counts: dict[str, int]) -> str:
    """The Hill formula: carbon, hydrogen, then the rest by name.

    >>> render_formula({"O": 1, "H": 6, "C": 2})
    'C2H6O'
    """
    leading = [element for element in ("C", "H") if counts.get(element)]
    rest = sorted(e for e, number in counts.items() if number and e not in ("C", "H"))
    return "".join(f"{e}{counts[e] if counts[e] > 1 else ''}" for e in leading + rest)


def unsaturation(counts: dict[str, int]) -> int | None:
    """Rings plus extra bonds that a formula leaves (its degree of unsaturation).

    None where no closed-shell molecule has the formula.

    >>> unsaturation({"C": 6, "H": 6})
    4
    """
    free = 2 - counts.get("H", 0)
    free += sum(n * (VALENCES[e] - 2) for e, n in counts.items() if e != "H")
    return free // 2 if free >= 0 and free % 2 == 0 else None


def check_formula(formula: str) -> dict[str, int]:
    """The element counts of a formula that can be enumerated. Raises ConfigError."""
    counts = parse_formula(formula)
    if counts is None:
        raise ConfigError(
            f"{formula!r} is not a molecular formula", hint="write one such as C4H8O2"
        )
    unknown = sorted(set(counts) - set(VALENCES) - {"H"})
    if unknown:
        raise ConfigError(
            f"cannot enumerate the isomers of {formula}: element {unknown[0]} is not one of "
            f"H, {', '.join(VALENCES)}"
        )
    heavy = sum(number for element, number in counts.items() if element != "H")
    if not 1 <= heavy <= MAX_HEAVY_ATOMS:
        raise ConfigError(
            f"cannot enumerate the isomers of {formula}: it has {heavy} heavy atoms",
            hint=f"choose a formula with 1 to {MAX_HEAVY_ATOMS} atoms other than hydrogen",
        )
    if unsaturation(counts) is None:
        raise ConfigError(
            f"no molecule has the formula {formula}: its hydrogens do not fit the valences"
        )
    return counts


@lru_cache(maxsize=256)
def isomers(formula: str) -> tuple[str, ...]:
    """All constitutional isomers of a formula as canonical SMILES, in order.

    Raises ConfigError for what is not a formula, has no molecule, or is too large.
    """
    counts = check_formula(formula)
    with rdBase.BlockLogs():
        graphs = _trees(counts, formula)
        for _ in range(unsaturation(counts) or 0):
            graphs = _distinct(
                (more for graph in graphs for more in _one_bond_more(graph)), formula
            )
        # The last pass perceives aromaticity, which joins the Kekule forms of one molecule.
        found: set[str] = {_chem.CanonSmiles(_render_smiles(graph)) for graph in graphs}
    return tuple(sorted(found))


def _trees(counts: dict[str, int], formula: str) -> list[_Graph]:
    heavy = {element: number for element, number in counts.items() if element != "H"}
    graphs: list[_Graph] = [((element,), {}) for element in heavy]
    for _ in range(sum(heavy.values()) - 1):
        graphs = _distinct(
            (more for graph in graphs for more in _one_atom_more(graph, heavy)), formula
        )
    return graphs


def _one_atom_more(graph: _Graph, heavy: dict[str, int]) -> Iterable[_Graph]:
    atoms, bonds = graph
    free = _free_valences(graph)
    for element, number in heavy.items():
        if atoms.count(element) < number:
            for i in range(len(atoms)):
                if free[i]:
                    yield (*atoms, element), {**bonds, (i, len(atoms)): 1}


def _one_bond_more(graph: _Graph) -> Iterable[_Graph]:
    atoms, bonds = graph
    free = _free_valences(graph)
    for j in range(len(atoms)):
        for i in range(j):
            order = bonds.get((i, j), 0)
            if free[i] and free[j] and order < 3:
                yield atoms, {**bonds, (i, j): order + 1}


def _free_valences(graph: _Graph) -> list[int]:
    atoms, bonds = graph
    free = [VALENCES[element] for element in atoms]
    for (i, j), order in bonds.items():
        free[i] -= order
        free[j] -= order
    return free


def _distinct(graphs: Iterable[_Graph], formula: str) -> list[_Graph]:
    by_smiles: dict[str, _Graph] = {}
    for graph in graphs:
        by_smiles.setdefault(_render_smiles(graph), graph)
        if len(by_smiles) > MAX_STATES:
            raise ConfigError(
                f"cannot enumerate the isomers of {formula}: there are too many",
                hint="choose a formula with fewer atoms other than hydrogen, or less unsaturated",
            )
    return list(by_smiles.values())


def _render_smiles(graph: _Graph) -> str:
    atoms, bonds = graph
    molecule = _chem.RWMol()
    for element in atoms:
        molecule.AddAtom(_chem.Atom(element))
    for (i, j), order in bonds.items():
        molecule.AddBond(i, j, _BOND_TYPES[order])
    molecule.UpdatePropertyCache(False)
    return _chem.MolToSmiles(molecule)
