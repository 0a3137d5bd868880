"""A molecule as a graph, read from a SMILES without stereo, isotopes and dots.

    >>> graph = read_graph("C1=CCC1")
    >>> graph.tokens, [(bond.ends, bond.order) for bond in graph.bonds]
    (('C', 'C', 'C', 'C'), [((0, 1), 2), ((1, 2), 1), ((2, 3), 1), ((0, 3), 1)])

An atom is the text that writes it: `C`, `Cl`, `[nH]`, `[O-]`. That is all that `traces.py` needs to
write the same molecule in another order, since its hydrogens then stay the same by themselves.

Surprising: this reads what RDKit has written, and does not check chemistry.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import NamedTuple

AROMATIC = 5  # the order of a bond that may be left unwritten between aromatic atoms
_ORDERS = {"-": 1, "=": 2, "#": 3, "$": 4, ":": AROMATIC}
SIGNS = {1: "-", 2: "=", 3: "#", 4: "$", AROMATIC: ""}
_TOKEN = re.compile(r"\[[^]]+\]|Cl|Br|[BCNOPSFIbcnops]|%[0-9]{2}|[0-9]|[-=#:]|[()]")


class Bond(NamedTuple):
    """A bond between two atoms. `implicit` says that it may be left unwritten."""

    ends: tuple[int, int]
    order: int
    implicit: bool

    def other(self, atom: int) -> int:
        return self.ends[1] if self.ends[0] == atom else self.ends[0]

    @property
    def sign(self) -> str:
        """What has to be written for the bond; "" for nothing."""
        return "" if self.implicit else SIGNS[self.order]

    def fits(self, sign: str) -> bool:
        """Whether it may be written with this sign, or "" for none."""
        return sign == SIGNS[self.order] if sign else self.implicit


@dataclass(frozen=True)
class Graph:
    """Attributes:
    tokens: how each atom is written.
    bonds: every bond.
    bonds_of: for each atom, the numbers of its bonds, the neighbour of the lowest number first.
    """

    tokens: tuple[str, ...]
    bonds: tuple[Bond, ...]
    bonds_of: tuple[tuple[int, ...], ...]

    @functools.cached_property
    def in_ring(self) -> tuple[bool, ...]:
        """For each bond, whether its atoms stay connected without it."""
        return tuple(_connected_without(self, number) for number in range(len(self.bonds)))


@functools.lru_cache(maxsize=4_096)
def read_graph(smiles: str) -> Graph:
    """The graph of a SMILES. Raises ValueError for what is no plain SMILES."""
    tokens: list[str] = []
    bonds: list[tuple[int, int, str]] = []
    rings: dict[str, tuple[int, str]] = {}
    stack: list[int] = []
    current, written, read = -1, "", 0
    for match in _TOKEN.finditer(smiles):
        text = match[0]
        if match.start() != read:
            break
        read = match.end()
        if text == "(":
            stack.append(current)
        elif text == ")":
            current = stack.pop()
        elif text in _ORDERS:
            written = text
        elif text[0] in "%0123456789":
            number = text.lstrip("%")
            if number in rings:
                first, stated = rings.pop(number)
                bonds.append((first, current, stated or written))
            else:
                rings[number] = current, written
            written = ""
        else:
            tokens.append(text)
            if current >= 0:
                bonds.append((current, len(tokens) - 1, written))
            current, written = len(tokens) - 1, ""
    if read != len(smiles) or rings or stack or not tokens:
        raise ValueError(f"not a plain SMILES: {smiles!r}")
    return _graph(tokens, bonds)


def _graph(tokens: list[str], written: list[tuple[int, int, str]]) -> Graph:
    aromatic = [token.lstrip("[")[0].islower() for token in tokens]
    bonds: list[Bond] = []
    beside: list[list[tuple[int, int]]] = [[] for _ in tokens]
    for first, second, symbol in written:
        both = aromatic[first] and aromatic[second]
        order = _ORDERS[symbol] if symbol else AROMATIC if both else 1
        bonds.append(Bond((first, second), order, order == AROMATIC or (order == 1 and not both)))
        beside[first].append((second, len(bonds) - 1))
        beside[second].append((first, len(bonds) - 1))
    bonds_of = tuple(tuple(bond for _, bond in sorted(found)) for found in beside)
    graph = Graph(tuple(tokens), tuple(bonds), bonds_of)
    # Two aromatic atoms with nothing between them are joined by a single bond where it is on no
    # ring, written or not.
    bonds = [
        bond
        if graph.in_ring[number] or bond.order not in (1, AROMATIC)
        else Bond(bond.ends, 1, implicit=True)
        for number, bond in enumerate(bonds)
    ]
    return Graph(graph.tokens, tuple(bonds), bonds_of)


def _connected_without(graph: Graph, removed: int) -> bool:
    start, goal = graph.bonds[removed].ends
    seen, pending = {start}, [start]
    while pending:
        atom = pending.pop()
        for bond in graph.bonds_of[atom]:
            other = graph.bonds[bond].other(atom)
            if bond != removed and other not in seen:
                seen.add(other)
                pending.append(other)
    return goal in seen
