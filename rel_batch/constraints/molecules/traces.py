"""The ways to write a molecule: a SMILES read as a walk over the molecule's graph.

    >>> from rel_batch.constraints.molecules.graphs import read_graph
    >>> tracing = Tracing(read_graph("COC"))
    >>> def reads(text):
    ...     found = [(tracing.start, "")]
    ...     for char in text:
    ...         found = [after for one in found for after in tracing.steps(one, char)]
    ...     return any(tracing.is_whole(trace) and not rest for trace, rest in found)
    >>> reads("COC"), reads("O(C)C"), reads("CCO")
    (True, True, False)

A *trace* is one walk so far: the atoms visited, the current one, the open branches, and the open
ring bonds, each with the atom that it will close at. A text may be read as several traces. Every
trace that `steps` returns can be finished, so a text begins a SMILES of the molecule exactly where
it has a trace.

Which SMILES: the atoms as the graph has them; bonds written where they must be; ring numbers 1 to
4, and others where these are taken, before the branches of their atom (as OpenSMILES has it); no
stereo marks.

Why a trace can be finished: once the ring numbers of an atom are done, each of its bonds is on the
walk, reserved for a ring, or committed to a branch of that atom; no two open atoms are committed
to one neighbour; and every atom not yet visited can be reached from an open one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rel_batch.constraints.molecules.graphs import Graph

# Phases of the current atom: ring numbers may follow; branches and atoms only; a branch opened.
NUMBERS, BRANCHED, OPENED = 0, 1, 2
DIGITS = "1234567890"
FREE_DIGITS = "1234"


class Ring(NamedTuple):
    """An open ring bond: its number, the atom that it closes at, and whether its sign is written.

    `bond` is the bond's number in the graph.
    """

    digit: str
    to: int
    bond: int
    stated: bool


class Trace(NamedTuple):
    """A walk; `visited` (atoms) and `used` (bonds) are sets of bits, `sign` a bond's, if any."""

    visited: int
    used: int
    current: int
    phase: int
    sign: str
    stack: tuple[int, ...]
    rings: tuple[Ring, ...]


Reading = tuple[Trace, str]  # a trace, and what is left to read of its last atom


class Tracing:
    """The traces of one graph. Safe in threads: what it remembers is only added to."""

    def __init__(self, graph: Graph) -> None:
        self.start = Trace(0, 0, -1, NUMBERS, "", (), ())
        self._graph = graph
        self._every_atom = (1 << len(graph.tokens)) - 1
        self._every_bond = (1 << len(graph.bonds)) - 1
        self._ways: dict[Trace, Mapping[str, tuple[Reading, ...]]] = {}
        self._distances: dict[Trace, int] = {}

    def steps(self, reading: Reading, char: str) -> tuple[Reading, ...]:
        """What a reading becomes with one more character."""
        return self.ways(reading).get(char, ())

    def ways(self, reading: Reading) -> Mapping[str, tuple[Reading, ...]]:
        """What a reading becomes with each character that may follow."""
        trace, rest = reading
        if rest:
            return {rest[0]: ((trace, rest[1:]),)}
        known = self._ways.get(trace)
        if known is None:
            found: dict[str, list[Reading]] = {}
            for text, after in self._pieces(trace):
                found.setdefault(text[0], []).append((after, text[1:]))
            known = self._ways[trace] = {char: tuple(ways) for char, ways in found.items()}
        return known

    def is_whole(self, trace: Trace) -> bool:
        """Whether the walk is over: what was read is a SMILES of the molecule."""
        return (
            trace.visited == self._every_atom
            and trace.used == self._every_bond
            and not (trace.stack or trace.rings)
        )

    def distance(self, trace: Trace) -> int:
        """Characters of an ending, whose first one leads to a trace that is nearer by one."""
        way: list[tuple[Trace, int]] = []
        while trace not in self._distances and not self.is_whole(trace):
            found = self._next(trace)
            assert found is not None, "every trace can be finished"
            way.append((trace, len(found[0])))
            trace = found[1]
        total = self._distances.get(trace, 0)
        for passed, length in reversed(way):
            total += length
            self._distances[passed] = total
        return total

    # -- what may follow a trace ---------------------------------------------------------------

    def _pieces(self, trace: Trace) -> Iterator[tuple[str, Trace]]:
        """The signs, numbers, brackets and atoms that may be written next."""
        current = trace.current
        if current >= 0 and trace.phase == NUMBERS:
            for ring in trace.rings:
                after = self._close_ring(trace, ring)
                if after is not None:
                    yield ring.digit, after
            digits = self._new_digits(trace)
            for bond in self._unlike(trace, self._ahead(trace, current)):
                if digits and self._open_ring(trace, digits[0], bond) is not None:
                    for digit in digits:
                        yield digit, self._opened(trace, digit, bond)
        if current >= 0 and not trace.sign:
            for sign in self._signs(trace):
                after = trace._replace(sign=sign)
                if self._next(after) is not None:
                    yield sign, after
            for char, after in (
                ("(", self._open_branch(trace)),
                (")", self._close_branch(trace)),
            ):
                if after is not None:
                    yield char, after
        yield from self._with_atom(trace)

    def _signs(self, trace: Trace) -> set[str]:
        """The signs of the bonds that the current atom may go on with."""
        bonds = self._graph.bonds
        closing = (ring.bond for ring in trace.rings if ring.to == trace.current)
        signs = {bonds[n].sign for n in (*closing, *self._ahead(trace, trace.current))}
        return signs - {""}

    def _unlike(self, trace: Trace, ahead: tuple[int, ...]) -> tuple[int, ...]:
        """`ahead` without those that lead to a last atom like another one's."""
        graph = self._graph
        found: dict[tuple[str, int, int], int] = {}
        for number in ahead:
            atom = graph.bonds[number].other(trace.current)
            last = len(graph.bonds_of[atom]) == 1
            found.setdefault(
                (graph.tokens[atom], graph.bonds[number].order, -1 if last else atom), number
            )
        return tuple(found.values())

    def _new_digits(self, trace: Trace) -> list[str]:
        """The numbers that a new ring may have: the lowest that is free, and a few more."""
        taken = {ring.digit for ring in trace.rings}
        free = [digit for digit in DIGITS if digit not in taken]
        return [digit for digit in free if digit in FREE_DIGITS or digit == free[0]]

    def _close_ring(self, trace: Trace, ring: Ring) -> Trace | None:
        if ring.to != trace.current or not (
            (ring.stated and not trace.sign) or self._graph.bonds[ring.bond].fits(trace.sign)
        ):
            return None
        return trace._replace(sign="", rings=tuple(r for r in trace.rings if r != ring))

    def _open_ring(self, trace: Trace, digit: str, bond: int) -> Trace | None:
        if trace.sign and not self._graph.bonds[bond].fits(trace.sign):
            return None
        after = self._opened(trace, digit, bond)
        return after if self._reaches_all(after) else None

    def _opened(self, trace: Trace, digit: str, bond: int) -> Trace:
        ring = Ring(digit, self._graph.bonds[bond].other(trace.current), bond, bool(trace.sign))
        rings = tuple(sorted((*trace.rings, ring)))
        return trace._replace(used=trace.used | 1 << bond, sign="", rings=rings)

    def _open_branch(self, trace: Trace) -> Trace | None:
        if trace.sign or trace.phase == OPENED or not self._may_leave(trace):
            return None
        if trace.current < 0 or not self._ahead(trace, trace.current):
            return None
        return trace._replace(phase=OPENED, stack=(*trace.stack, trace.current))

    def _close_branch(self, trace: Trace) -> Trace | None:
        if trace.sign or trace.phase == OPENED or not trace.stack:
            return None
        if not self._may_leave(trace) or self._ahead(trace, trace.current):
            return None
        return trace._replace(current=trace.stack[-1], phase=BRANCHED, stack=trace.stack[:-1])

    def _with_atom(self, trace: Trace) -> Iterator[tuple[str, Trace]]:
        """The atoms that may be written next, with their texts."""
        if trace.current < 0:
            for atom, token in enumerate(self._graph.tokens):
                yield token, trace._replace(visited=1 << atom, current=atom)
            return
        ahead = self._ahead(trace, trace.current)
        # Without a branch there is no way back to the current atom.
        if not self._may_leave(trace) or (len(ahead) > 1 and trace.phase != OPENED):
            return
        for number in self._unlike(trace, ahead):
            bond = self._graph.bonds[number]
            if bond.fits(trace.sign):
                atom = bond.other(trace.current)
                yield (
                    self._graph.tokens[atom],
                    Trace(
                        trace.visited | 1 << atom,
                        trace.used | 1 << number,
                        atom,
                        NUMBERS,
                        "",
                        trace.stack,
                        trace.rings,
                    ),
                )

    # -- where a trace ends --------------------------------------------------------------------

    def _next(self, trace: Trace) -> tuple[str, Trace] | None:
        """The next piece of the ending, and the trace after it; None for a sign that fits nothing.

        Surprising: what it says after a sign is what it said before it, less the sign.
        """
        current = trace.current
        if current < 0:
            return next(self._with_atom(trace))
        ahead = self._ahead(trace, current)
        if trace.phase == NUMBERS:
            for ring in trace.rings:
                if ring.to == current:
                    sign = "" if ring.stated else self._sign_of(trace, ring.bond)
                    after = self._close_ring(trace._replace(sign=sign or trace.sign), ring)
                    if after is not None:
                        return sign + ring.digit, after
            reserved = self._to_reserve(trace, ahead)
            # A sign may also be meant for a ring that could have been a branch.
            for bond in (*reserved, *(ahead if trace.sign else ())):
                found = self._next_ring(trace, bond)
                if found is not None and (bond in reserved or not self._may_enter(trace, ahead)):
                    return found
        if trace.phase != OPENED and not trace.sign:
            if not ahead:
                after = self._close_branch(trace)
                return None if after is None else (")", after)
            if len(ahead) > 1:
                after = self._open_branch(trace)
                return None if after is None else ("(", after)
        for bond in ahead:
            sign = self._sign_of(trace, bond)
            for token, after in self._with_atom(trace._replace(sign=sign or trace.sign)):
                if after.used >> bond & 1:
                    return sign + token, after
        return None

    def _next_ring(self, trace: Trace, bond: int) -> tuple[str, Trace] | None:
        digits = self._new_digits(trace)
        if not digits:
            return None
        sign = self._sign_of(trace, bond)
        after = self._open_ring(trace._replace(sign=sign or trace.sign), digits[0], bond)
        return None if after is None else (sign + digits[0], after)

    def _sign_of(self, trace: Trace, number: int) -> str:
        """What has to be written before this bond."""
        return "" if trace.sign else self._graph.bonds[number].sign

    def _may_enter(self, trace: Trace, ahead: tuple[int, ...]) -> bool:
        return (
            len(ahead) == 1
            and self._may_leave(trace)
            and self._graph.bonds[ahead[0]].fits(trace.sign)
        )

    def _to_reserve(self, trace: Trace, ahead: tuple[int, ...]) -> tuple[int, ...]:
        """The bonds ahead that must be ring bonds: their atoms are reached in another way."""
        committed = self._committed(trace)
        reserved: list[int] = []
        reached = 0
        for number in ahead:
            atom = 1 << self._graph.bonds[number].other(trace.current)
            if (committed | reached) & atom:
                reserved.append(number)
            else:
                reached |= self._flood(trace, atom, trace.visited | committed)
        return tuple(reserved)

    # -- sets of atoms -------------------------------------------------------------------------

    def _ahead(self, trace: Trace, atom: int) -> tuple[int, ...]:
        """The bonds of an atom that are not used."""
        return tuple(n for n in self._graph.bonds_of[atom] if not trace.used >> n & 1)

    def _may_leave(self, trace: Trace) -> bool:
        """Whether the ring numbers of the current atom are done."""
        if trace.phase != NUMBERS or trace.current < 0:
            return True
        if any(ring.to == trace.current for ring in trace.rings):
            return False
        committed = self._committed(trace)
        bonds = self._graph.bonds
        return not any(
            committed >> bonds[n].other(trace.current) & 1
            for n in self._ahead(trace, trace.current)
        )

    def _committed(self, trace: Trace) -> int:
        """The atoms that are the next ones of an open branch."""
        bonds = self._graph.bonds
        atoms = 0
        for atom in trace.stack:
            for number in self._ahead(trace, atom):
                atoms |= 1 << bonds[number].other(atom)
        return atoms

    def _reaches_all(self, trace: Trace) -> bool:
        open_atoms = 1 << trace.current
        for atom in trace.stack:
            open_atoms |= 1 << atom
        closed = trace.visited & ~open_atoms
        return (self._flood(trace, open_atoms, closed) | closed) == self._every_atom

    def _flood(self, trace: Trace, atoms: int, barred: int) -> int:
        """What is reached from `atoms` over unused bonds without entering a barred atom."""
        reached = pending = atoms
        while pending:
            atom = pending.bit_length() - 1
            pending &= ~(1 << atom)
            for number in self._ahead(trace, atom):
                other = 1 << self._graph.bonds[number].other(atom)
                if not other & (reached | barred):
                    reached |= other
                    pending |= other
        return reached
