"""The leaf `NewMolecules`: molecules of a finite set, none of them twice, however they are written.

    >>> leaf = NewMolecules((("CCO",), ("COC",)), "<s>", "</s>", "\\n")
    >>> from rel_batch.constraints.machine import Machine
    >>> machine = Machine(leaf, {})
    >>> machine.matches("<s>OCC</s>\\n<s>COC</s>"), machine.matches("<s>OCC</s>\\n<s>C(C)O</s>")
    (True, False)

For the assisted rung of REL-C3, where the molecules are the missing isomers. `chem/assisted.py`
finds them with RDKit; here they are graphs, and every way to write one (`traces.py`) is known.

Surprising: what was read of a molecule does not depend on which are already written, so that
requests and questions with the same molecules share it (`_Language`, kept for the process).
"""

from __future__ import annotations

import functools
import itertools
from array import array
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from rel_batch.constraints.expressions import Expression
from rel_batch.constraints.molecules.native import load_automaton
from rel_batch.constraints.molecules.readings import first_rows, render_graphs

# What one set of molecules remembers, of 64 sets at most.
MAX_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class NewMolecules(Expression):
    """One or more of the molecules, none twice, each between two texts.

    Attributes:
        molecules: at least one; each as one SMILES, or several where its bonds can be placed in
            several ways (aromatic, and each Kekulé structure), without stereo.
        opening, closing: what stands around each molecule; not empty, not begun by a character of
            SMILES.
        separator: what stands between two; not empty.
        given: the numbers of molecules that count as written; not all of them. What is remembered
            of a set of molecules serves whichever are given.
    """

    molecules: tuple[tuple[str, ...], ...]
    opening: str
    closing: str
    separator: str = "\n"
    given: tuple[int, ...] = ()

    def first(self) -> _State:
        return _State("opening", 0, _NOTHING, sum(1 << number for number in self.given))

    def step(self, state: Hashable, char: str) -> _State | None:
        where, at, read, written = cast("_State", state)
        if where == "molecule":
            language = _language(self.molecules)
            following = language.ways(read).get(char)
            if following is not None and language.nearest(following, written) is not None:
                return _State(where, 0, following, written)
            found = language.whole(read)
            if found is None or written >> found & 1 or char != self.closing[0]:
                return None
            return self._at("closing", 1, written | 1 << found)
        text = self._text(where)
        if at < len(text):
            return self._at(where, at + 1, written) if text[at] == char else None
        # The molecule is closed: is there another one?
        return self._at("separator", 1, written) if self._goes_on(written, char) else None

    def is_final(self, state: Hashable) -> bool:
        where, at, _, _ = cast("_State", state)
        return where == "closing" and at == len(self.closing)

    def next_chars(self, state: Hashable) -> frozenset[str]:
        where, at, read, _ = cast("_State", state)
        if where == "molecule":
            return frozenset(_language(self.molecules).ways(read)) | {self.closing[0]}
        text = self._text(where)
        return frozenset(text[at : at + 1] or self.separator[0])

    def distance(self, state: Hashable) -> int:
        """Characters to the nearest end."""
        where, at, read, written = cast("_State", state)
        if where == "closing":
            return len(self.closing) - at
        language = _language(self.molecules)
        ahead = 0
        if where != "molecule":
            read = language.start
            ahead = len(self._text(where)) - at
            ahead += len(self.opening) if where == "separator" else 0
        nearest = language.nearest(read, written)
        assert nearest is not None
        return ahead + nearest + len(self.closing)

    def text_form(self) -> str:
        left = (m for number, m in enumerate(self.molecules) if number not in self.given)
        shown = " | ".join(repr(smiles[0]) for smiles in left)
        each = f"{self.opening!r} (each at most once, written in any way: {shown}) {self.closing!r}"
        return f"{each}, separated by {self.separator!r}"

    def _text(self, where: str) -> str:
        match where:
            case "opening":
                return self.opening
            case "closing":
                return self.closing
            case _:
                return self.separator

    def _goes_on(self, written: int, char: str) -> bool:
        return char == self.separator[0] and written.bit_count() < len(self.molecules)

    def _at(self, where: str, at: int, written: int) -> _State:
        if where == "separator" and at == len(self.separator):
            where, at = "opening", 0
        if where == "opening" and at == len(self.opening):
            return _State("molecule", 0, _language(self.molecules).start, written)
        return _State(where, at, _NOTHING, written)


@dataclass(frozen=True, slots=True)
class _Readings:
    """All that a text may be read as; `rows` are those of `readings.py`."""

    key: tuple[int, int, int]
    rows: bytes = field(compare=False, repr=False)


_NOTHING = _Readings((0, 0, 0), b"")


class _State(NamedTuple):
    """Where in which part; `written` has a bit for each molecule that was closed."""

    where: str
    at: int
    read: _Readings
    written: int


class _Language:
    """All ways to write the molecules of one set."""

    def __init__(self, molecules: tuple[tuple[str, ...], ...]) -> None:
        graphs = render_graphs(molecules)
        self._graphs = array("q", graphs)
        self._salt = next(_SALTS)
        self._num_molecules = len(molecules)
        self.start = _Readings((len(molecules), 0, 0), array("q", first_rows(graphs)).tobytes())
        self._ways: dict[_Readings, Mapping[str, _Readings]] = {}
        self._nearest: dict[_Readings, tuple[tuple[int, int], ...]] = {}
        self._num_bytes = 0

    def ways(self, read: _Readings) -> Mapping[str, _Readings]:
        """What the readings become with each character that fits some of them."""
        known = self._ways.get(read)
        if known is None:
            if self._num_bytes >= MAX_BYTES:
                self._ways.clear()
                self._nearest.clear()
                self._num_bytes = 0
            groups = _automaton().expand(self._graphs, read.rows)
            known = {group.char: _Readings(group.key, group.rows) for group in groups}
            self._ways[read] = known
            self._num_bytes += sum(len(group.rows) + 300 for group in groups)
        return known

    def whole(self, read: _Readings) -> int | None:
        """The molecule that has been written, if it may end here."""
        distance, molecule = self._by_distance(read)[0] if read.rows else (1, 0)
        return molecule if distance == 0 else None

    def nearest(self, read: _Readings, written: int) -> int | None:
        """Characters to the nearest end of a molecule that is not written; None for none."""
        for distance, number in self._by_distance(read):
            if not written >> number & 1:
                return distance
        return None

    def _by_distance(self, read: _Readings) -> tuple[tuple[int, int], ...]:
        """For each molecule that may still be written its (distance, number), nearest first."""
        known = self._nearest.get(read)
        if known is None:
            found = _automaton().nearest(self._graphs, self._salt, read.rows, self._num_molecules)
            ordered = sorted((far, molecule) for molecule, far in enumerate(found) if far >= 0)
            known = self._nearest[read] = tuple(ordered)
            self._num_bytes += 100 + 120 * len(known)
        return known


_SALTS = itertools.count()
_automaton = functools.cache(load_automaton)


@functools.lru_cache(maxsize=64)
def _language(molecules: tuple[tuple[str, ...], ...]) -> _Language:
    return _Language(molecules)
