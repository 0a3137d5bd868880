"""SMILES of substructures, read as walks over a part of a molecule's graph.

As `constraints/molecules/traces.py`, but a walk may leave atoms and bonds out. What is left out
decides whether the text is a molecule at all (half an aromatic ring is none), so a walk is whole
only if RDKit finds its SMILES in the molecule, and `ending` looks for a way to such a walk: the
atoms visited, whole aromatic rings around them, what the open rings need, and more atoms until
there are enough; then the same with whole systems of rings, and with all that can be reached.

Surprising: an atom may be written with other hydrogens or without its charge, since a substructure
is looked for by elements, bonds and such charges as it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, islice, product
from typing import NamedTuple

from rel_batch.chem.substructure_atoms import (
    BRACKET,
    aromatic_rings,
    bracket,
    num_hydrogens,
    ring_systems,
    variants,
)
from rel_batch.chem.substructure_plans import DIGITS, Plan, Ring, Writer
from rel_batch.chem.substructures import is_in
from rel_batch.constraints.molecules.graphs import AROMATIC, Bond, read_graph

# Phases of the current atom: ring numbers may follow; branches and atoms only; a branch opened.
NUMBERS, BRANCHED, OPENED = 0, 1, 2
# Atoms that have hydrogen in the place of a bond that is cut, with no other change.
_PLAIN = frozenset(("B", "C", "N", "O", "c"))
_MAX_FILLINGS = 16
# Endings and parts that one molecule remembers.
MAX_REMEMBERED = 50_000


_Others = tuple[tuple[int, str], ...]
_Part = tuple[int, int, _Others]  # atoms, bonds, and the atoms that are written otherwise


class Trace(NamedTuple):
    """A walk; `others` are the atoms that are not written as the molecule has them."""

    visited: int
    used: int
    current: int
    phase: int
    sign: str
    stack: tuple[int, ...]
    rings: tuple[Ring, ...]
    others: _Others


Reading = tuple[Trace, str]


class Walks:
    """The walks over one molecule."""

    def __init__(self, molecule: str, min_atoms: int) -> None:
        self._molecule = molecule
        self._min_atoms = min_atoms
        self._graph = read_graph(molecule)
        self._tokens = tuple(variants(token) for token in self._graph.tokens)
        self._rings = aromatic_rings(molecule)
        self._systems = ring_systems(self._rings)
        self._beside = [
            _union(1 << self._graph.bonds[number].other(atom) for number in beside)
            for atom, beside in enumerate(self._graph.bonds_of)
        ]
        aromatic = (
            _union(1 << number for number in beside if self._graph.bonds[number].order == AROMATIC)
            for beside in self._graph.bonds_of
        )
        self._aromatic = [(atom, bonds) for atom, bonds in enumerate(aromatic) if bonds]
        self._steps: dict[Trace, dict[str, list[Reading]]] = {}
        self._parts: dict[_Part, bool] = {}
        self._endings: dict[Trace, str | None] = {}
        self.start = Trace(0, 0, -1, NUMBERS, "", (), (), ())
        written = "".join(token for tokens in self._tokens for token in tokens)
        self.chars = frozenset(written) | frozenset("()-=#" + DIGITS)

    def steps(self, reading: Reading, char: str) -> list[Reading]:
        """What a reading becomes with one more character, without what cannot be finished."""
        trace, rest = reading
        if rest:
            return [(trace, rest[1:])] if rest[0] == char else []
        known = self._steps.setdefault(trace, {})
        if char not in known:
            if len(self._steps) >= MAX_REMEMBERED:
                self._steps.clear()
            known[char] = [one for one in self._read(trace, char) if self._may_end(one[0])]
        return known[char]

    def _read(self, trace: Trace, char: str) -> list[Reading]:
        if char in DIGITS:
            return [(after, "") for after in self._with_number(trace, char)]
        leaves = trace.current >= 0 and not trace.sign and trace.phase != OPENED
        owes = any(ring.to == trace.current for ring in trace.rings)
        match char:
            case "-" | "=" | "#" | "$":
                if not trace.sign and trace.current >= 0 and self._fits_ahead(trace, char):
                    return [(trace._replace(sign=char), "")]
            case "(":
                if leaves and not owes and any(self._ahead(trace)):
                    stack = (*trace.stack, trace.current)
                    return [(trace._replace(phase=OPENED, stack=stack), "")]
            case ")":
                if leaves and not owes and trace.stack:
                    current, stack = trace.stack[-1], trace.stack[:-1]
                    return [(trace._replace(current=current, phase=BRANCHED, stack=stack), "")]
            case _:
                if not owes:
                    found = self._with_atom(trace)
                    return [(after, token[1:]) for token, after in found if token[0] == char]
        return []

    def _may_end(self, trace: Trace) -> bool:
        """Whether no atom, and no ring, says that the walk cannot be finished."""
        open_atoms = 0 if trace.current < 0 else 1 << trace.current
        for atom in trace.stack:
            open_atoms |= 1 << atom
        closed = trace.visited & ~open_atoms
        for atom, bonds in self._aromatic:
            # An aromatic atom has two aromatic bonds, or is in no aromatic ring.
            if closed >> atom & 1 and (trace.used & bonds).bit_count() < 2:
                return False
        return self._may_close(trace)

    def _may_close(self, trace: Trace) -> bool:
        """Whether the atoms at which open rings close can still be reached."""
        wanted = 0
        for ring in trace.rings:
            if ring.to != trace.current:
                wanted |= 1 << ring.to
        if not wanted:
            return True
        if wanted & trace.visited:
            return False
        left, pending = ~trace.visited, 0
        for atom in (trace.current, *trace.stack):
            pending |= self._beside[atom]
        for ring in trace.rings:  # not over the bond that is the ring's, but in another way
            opener = self._graph.bonds[ring.bond].other(ring.to)
            if not any(
                self._beside[atom] >> ring.to & 1
                for atom in (trace.current, *trace.stack)
                if atom != opener
            ):
                pending &= ~(1 << ring.to)
        pending &= left
        while pending:
            left &= ~pending
            if not wanted & left:
                return True
            atom = pending.bit_length() - 1
            pending = (pending ^ 1 << atom) | self._beside[atom] & left
        return False

    def is_whole(self, trace: Trace) -> bool:
        """Whether what was read is a substructure, large enough."""
        if trace.stack or trace.rings or trace.sign or trace.current < 0:
            return False
        return self._is_part(trace.visited, trace.used, trace.others)

    def ending(self, trace: Trace) -> str | None:
        """A text that makes the walk whole; None where none is found."""
        if trace not in self._endings:
            if len(self._endings) >= MAX_REMEMBERED:
                self._endings.clear()
            self._endings[trace] = self._ending(trace)
        return self._endings.get(trace)

    # -- reading -------------------------------------------------------------------------------

    def _ahead(self, trace: Trace) -> Iterator[tuple[int, Bond, int]]:
        """The bonds of the current atom to atoms not visited: (number, bond, atom)."""
        for number in self._graph.bonds_of[trace.current]:
            bond = self._graph.bonds[number]
            atom = bond.other(trace.current)
            if not (trace.used >> number & 1 or trace.visited >> atom & 1):
                yield number, bond, atom

    def _fits_ahead(self, trace: Trace, sign: str) -> bool:
        """Whether some bond of the current atom can be written with this sign."""
        closing = (self._graph.bonds[r.bond] for r in trace.rings if r.to == trace.current)
        ahead = (bond for _, bond, _ in self._ahead(trace))
        return any(bond.fits(sign) for bond in (*closing, *ahead))

    def _with_number(self, trace: Trace, digit: str) -> Iterator[Trace]:
        if trace.phase != NUMBERS or trace.current < 0:
            return
        for ring in trace.rings:
            if ring.digit == digit:
                bond = self._graph.bonds[ring.bond]
                stated = ring.stated and not trace.sign
                if ring.to == trace.current and (stated or bond.fits(trace.sign)):
                    rings = tuple(other for other in trace.rings if other != ring)
                    yield trace._replace(sign="", rings=rings)
                return
        for number, bond, atom in self._ahead(trace):
            if self._graph.in_ring[number] and (not trace.sign or bond.fits(trace.sign)):
                rings = tuple(sorted((*trace.rings, Ring(digit, atom, number, bool(trace.sign)))))
                yield trace._replace(sign="", used=trace.used | 1 << number, rings=rings)

    def _with_atom(self, trace: Trace) -> Iterator[tuple[str, Trace]]:
        if trace.current < 0:
            for atom in range(len(self._tokens)):
                yield from self._written(trace, atom, trace.used)
            return
        for number, bond, atom in self._ahead(trace):
            if bond.fits(trace.sign):
                yield from self._written(trace, atom, trace.used | 1 << number)

    def _written(self, trace: Trace, atom: int, used: int) -> Iterator[tuple[str, Trace]]:
        for token in self._tokens[atom]:
            others = trace.others
            if token != self._graph.tokens[atom]:
                others = tuple(sorted((*others, (atom, token))))
            visited = trace.visited | 1 << atom
            yield (
                token,
                Trace(visited, used, atom, NUMBERS, "", trace.stack, trace.rings, others),
            )

    # -- endings -------------------------------------------------------------------------------

    def _ending(self, trace: Trace) -> str | None:
        if trace.current >= 0 and not trace.sign and trace.phase != OPENED:
            if self.is_whole(trace):
                return ""
            over = (self._written_over(trace, atoms) for atoms in self._targets(trace))
            return next((text for text, part in filter(None, over) if self._is_part(*part)), None)
        # An atom has to come next, or the number of the ring that a sign is for.
        ways = list(self._with_atom(trace))
        if trace.sign and trace.phase == NUMBERS:
            ways += [(d, after) for d in DIGITS for after in self._with_number(trace, d)]
        if trace.current >= 0 and not trace.sign:
            ways += [(sign, trace._replace(sign=sign)) for sign in "=#-"]
        endings = ((text, self.ending(after)) for text, after in ways)
        return next((text + rest for text, rest in endings if rest is not None), None)

    def _targets(self, trace: Trace) -> Iterator[int]:
        """Sets of atoms that a substructure around the walk may have, the smallest first."""
        for wanted, barred in self._fillings(trace):
            order = self._by_nearness(trace, barred)
            if any(ring.to != trace.current and ring.to not in order for ring in trace.rings):
                continue  # an atom that is left is needed to close a ring
            for rings in (self._rings, self._systems):
                atoms = trace.visited | wanted
                for ring in trace.rings:
                    atoms |= 1 << ring.to
                atoms = self._completed(atoms, order, rings)
                for atom in order:
                    if atoms.bit_count() >= self._min_atoms:
                        break
                    atoms = self._completed(atoms | 1 << atom, order, rings)
                yield atoms
            yield trace.visited | sum(1 << atom for atom in order)

    def _fillings(self, trace: Trace) -> Iterator[tuple[int, int]]:
        """The atoms to take and to leave so that the hydrogens that were written are right.

        A hydrogen that the molecule has not stands for a bond that is cut.
        """
        choices: list[list[tuple[int, int]]] = []
        for atom, token in trace.others:
            written, own = (BRACKET.fullmatch(t) for t in (token, self._graph.tokens[atom]))
            if written is None or token[1].islower():
                continue
            hydrogens = num_hydrogens(written) - (0 if own is None else num_hydrogens(own))
            bonds = [(n, self._graph.bonds[n]) for n in self._graph.bonds_of[atom]]
            free = [
                (1 << bond.other(atom), bond.order)
                for number, bond in bonds
                if not (trace.used >> number | trace.visited >> bond.other(atom)) & 1
            ]
            lost = [
                bond.order
                for number, bond in bonds
                if not trace.used >> number & 1 and trace.visited >> bond.other(atom) & 1
            ]
            choices.append(
                [
                    (sum(m for m, _ in free) - sum(m for m, _ in cut), sum(m for m, _ in cut))
                    for size in range(len(free) + 1)
                    for cut in combinations(free, size)
                    if sum(order for _, order in cut) + sum(lost) == hydrogens
                ]
            )
        for chosen in islice(product(*choices), _MAX_FILLINGS):
            yield _union(take for take, _ in chosen), _union(leave for _, leave in chosen)

    def _by_nearness(self, trace: Trace, barred: int) -> dict[int, int]:
        """The atoms that the walk can reach, nearest first, each with the one before it."""
        order: dict[int, int] = {}
        pending = [trace.current, *reversed(trace.stack)]
        for atom in pending:
            for number in self._graph.bonds_of[atom]:
                other = self._graph.bonds[number].other(atom)
                seen = (trace.visited | barred) >> other & 1 or other in order
                if not (seen or trace.used >> number & 1):
                    order[other] = atom
                    pending.append(other)
        return order

    def _completed(self, atoms: int, order: Mapping[int, int], rings: tuple[int, ...]) -> int:
        """`atoms` with what joins them to the walk, and with whole aromatic rings."""
        done = 0
        while pending := atoms & ~done:
            atom = pending.bit_length() - 1
            done |= 1 << atom
            if atom in order:
                atoms |= 1 << order[atom]
            around = [ring for ring in rings if ring >> atom & 1]
            if around and all(ring & ~atoms for ring in around):
                atoms |= max(around, key=lambda ring: ((ring & atoms).bit_count(), -ring))
            if around:  # what is bonded doubly to an aromatic atom makes it so
                bonds = (self._graph.bonds[number] for number in self._graph.bonds_of[atom])
                atoms |= sum(1 << bond.other(atom) for bond in bonds if bond.order == 2)
        return atoms

    def _written_over(self, trace: Trace, atoms: int) -> tuple[str, _Part] | None:
        """The rest of the walk over `atoms`: its text, and the part of the molecule in the end.

        None where a ring stays open.
        """
        plan = Plan(self._graph, atoms & ~trace.visited, trace.used)
        plan.visit(trace.current, numbers=trace.phase == NUMBERS)
        for atom in reversed(trace.stack):
            plan.visit(atom, numbers=False)
        tokens = {atom: self._token(atom, plan.used) for atom in plan.order}
        writer = Writer(self._graph, plan, tokens, trace.rings)
        writer.write_after(trace.current)
        for atom in reversed(trace.stack):
            writer.text.append(")")
            writer.write_branches(atom)
        if writer.rings:
            return None
        others = {a: t for a, t in tokens.items() if t != self._graph.tokens[a]}
        visited = trace.visited | sum(1 << atom for atom in plan.order)
        every_other = tuple(sorted((dict(trace.others) | others).items()))
        return "".join(writer.text), (visited, plan.used, every_other)

    def _token(self, atom: int, used: int) -> str:
        """How to write an atom, some of whose bonds may be cut: with hydrogen in their place."""
        own = self._graph.tokens[atom]
        bonds = (number for number in self._graph.bonds_of[atom] if not used >> number & 1)
        cut = sum(self._graph.bonds[n].order for n in bonds if self._graph.bonds[n].order < 4)
        if not cut:
            return own
        if own == "n":
            return "[nH]"
        match = BRACKET.fullmatch(own)
        if match is None:
            return own
        return bracket(match[1], cut + num_hydrogens(match), match[3])

    def _is_part(self, visited: int, used: int, others: _Others) -> bool:
        """Whether these atoms and bonds are a substructure, as RDKit finds it."""
        key = (visited, used, others)
        if key not in self._parts:
            if len(self._parts) >= MAX_REMEMBERED:
                self._parts.clear()
            large = visited.bit_count() >= self._min_atoms
            self._parts[key] = large and (
                self._is_plain_part(*key) or is_in(self._smiles(*key), self._molecule) is True
            )
        return self._parts.get(key, False)

    def _is_plain_part(self, visited: int, used: int, others: _Others) -> bool:
        """Whether only single bonds outside rings are cut, and hydrogen takes their place.

        RDKit reads such a part as it reads the molecule, so it need not be asked.
        """
        if others:
            return False
        for number, bond in enumerate(self._graph.bonds):
            if used >> number & 1:
                continue
            inside = [atom for atom in bond.ends if visited >> atom & 1]
            if inside and (bond.order != 1 or self._graph.in_ring[number]):
                return False
            if any(self._graph.tokens[atom] not in _PLAIN for atom in inside):
                return False
        return True

    def _smiles(self, visited: int, used: int, others: _Others) -> str:
        every = (1 << len(self._graph.bonds)) - 1
        plan = Plan(self._graph, visited, every & ~used)
        tokens = dict(enumerate(self._graph.tokens)) | dict(others)
        first = (visited & -visited).bit_length() - 1
        plan.enter(first)
        writer = Writer(self._graph, plan, tokens, ())
        writer.text.append(tokens[first])
        writer.write_after(first)
        return "".join(writer.text)


def _union(sets: Iterable[int]) -> int:
    atoms = 0
    for one in sets:
        atoms |= one
    return atoms
