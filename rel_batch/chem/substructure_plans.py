"""Writes the rest of a walk over a part of a molecule's graph, for `substructure_walks.py`.

First all is planned (`Plan`): the bonds that the walk takes, and the rings that atoms open. Then it
is written (`Writer`), since how an atom is written depends on the bonds that are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rel_batch.constraints.molecules.graphs import Graph

DIGITS = "1234567890"


class Ring(NamedTuple):
    """An open ring bond: its number, the atom that it closes at, and whether its sign is written.

    `bond` is the bond's number in the graph.
    """

    digit: str
    to: int
    bond: int
    stated: bool


class Plan:
    """A walk over `left`: the ring bonds that each atom opens, and its branches."""

    def __init__(self, graph: Graph, left: int, used: int) -> None:
        self._graph = graph
        self._left = left
        self.used = used
        self.order: list[int] = []
        self.opened: dict[int, list[int]] = {}
        self.branches: dict[int, list[tuple[int, int]]] = {}

    def enter(self, atom: int) -> None:
        self._left &= ~(1 << atom)
        self.order.append(atom)
        self.visit(atom, numbers=True)

    def visit(self, atom: int, *, numbers: bool) -> None:
        """Plan all that can be reached from an atom that is on the walk."""
        ahead: list[tuple[int, int]] = []
        reached = 0
        for number in self._graph.bonds_of[atom]:
            other = self._graph.bonds[number].other(atom)
            if self.used >> number & 1 or not self._left >> other & 1:
                continue
            if not reached >> other & 1:
                reached |= self._flood(other)
                ahead.append((number, other))
            elif numbers:
                self.opened.setdefault(atom, []).append(number)
            else:
                continue  # there is no way to write this bond any more
            self.used |= 1 << number
        self.branches[atom] = ahead
        for _, other in ahead:
            self.enter(other)

    def _flood(self, atom: int) -> int:
        reached = pending = 1 << atom
        while pending:
            atom = pending.bit_length() - 1
            pending &= ~(1 << atom)
            for number in self._graph.bonds_of[atom]:
                other = 1 << self._graph.bonds[number].other(atom)
                if not self.used >> number & 1 and other & self._left & ~reached:
                    reached |= other
                    pending |= other
        return reached


class Writer:
    """Writes a plan; `rings` are those that are open."""

    def __init__(
        self, graph: Graph, plan: Plan, tokens: Mapping[int, str], rings: tuple[Ring, ...]
    ) -> None:
        self._graph = graph
        self._plan = plan
        self._tokens = tokens
        self.rings = list(rings)
        self.text: list[str] = []

    def write_after(self, atom: int) -> None:
        """The ring numbers and branches of an atom that is written."""
        for ring in [ring for ring in self.rings if ring.to == atom]:
            self.rings.remove(ring)
            sign = "" if ring.stated else self._graph.bonds[ring.bond].sign
            self.text += [sign, ring.digit]
        for number in self._plan.opened.get(atom, ()):
            taken = {ring.digit for ring in self.rings}
            bond = self._graph.bonds[number]
            digit = next((d for d in DIGITS if d not in taken), "")
            # Without a free number the ring is one that nothing closes.
            to = bond.other(atom) if digit else -1
            self.rings.append(Ring(digit, to, number, stated=True))
            self.text += [bond.sign, digit]
        self.write_branches(atom)

    def write_branches(self, atom: int) -> None:
        branches = self._plan.branches.get(atom, [])
        for place, (number, other) in enumerate(branches, start=1):
            inner = [self._graph.bonds[number].sign, self._tokens[other]]
            if place < len(branches):
                self.text += ["(", *inner]
                self.write_after(other)
                self.text.append(")")
            else:
                self.text += inner
                self.write_after(other)
