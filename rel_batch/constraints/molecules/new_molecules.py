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
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from rel_batch.constraints.expressions import Expression
from rel_batch.constraints.molecules.graphs import read_graph
from rel_batch.constraints.molecules.traces import Reading, Tracing

# Steps and distances that one set of molecules remembers: some 100 bytes each, and the sets of
# readings that they lead to.
MAX_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class NewMolecules(Expression):
    """One or more of the molecules, none twice, each between two texts.

    Attributes:
        molecules: at least one; each as one SMILES, or several where its bonds can be placed in
            several ways (aromatic, and each Kekulé structure), without stereo.
        opening, closing: what stands around each molecule; not empty, not begun by a character of
            SMILES.
        separator: what stands between two; not empty.
    """

    molecules: tuple[tuple[str, ...], ...]
    opening: str
    closing: str
    separator: str = "\n"

    def first(self) -> _State:
        return _State("opening", 0, _NOTHING, 0)

    def step(self, state: Hashable, char: str) -> _State | None:
        where, at, read, written = cast("_State", state)
        if where == "molecule":
            language = _language(self.molecules)
            following = language.ways(read).get(char)
            if following and language.nearest(following, written) is not None:
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
        shown = " | ".join(repr(smiles[0]) for smiles in self.molecules)
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


# The readings of the molecules in the set: (molecule, its number among their graphs, reading).
_Readings = frozenset[tuple[int, int, Reading]]
_NOTHING: _Readings = frozenset()


class _State(NamedTuple):
    """Where in which part; `written` has a bit for each molecule that was closed."""

    where: str
    at: int
    read: _Readings
    written: int


class _Language:
    """All ways to write the molecules of one set."""

    def __init__(self, molecules: tuple[tuple[str, ...], ...]) -> None:
        self._tracings: list[Tracing] = []
        start: set[tuple[int, int, Reading]] = set()
        for number, spellings in enumerate(molecules):
            for smiles in spellings:
                tracing = Tracing(read_graph(smiles))
                start.add((number, len(self._tracings), (tracing.start, "")))
                self._tracings.append(tracing)
        self.start: _Readings = frozenset(start)
        self._ways: dict[_Readings, Mapping[str, _Readings]] = {}
        self._sets: dict[_Readings, _Readings] = {}
        self._nearest: dict[_Readings, tuple[tuple[int, int], ...]] = {}

    def ways(self, read: _Readings) -> Mapping[str, _Readings]:
        """What the readings become with each character that fits some of them."""
        known = self._ways.get(read)
        if known is None:
            if len(self._ways) >= MAX_REMEMBERED:
                self._ways.clear()
                self._sets.clear()
            found: dict[str, set[tuple[int, int, Reading]]] = {}
            for molecule, graph, reading in read:
                for char, ways in self._tracings[graph].ways(reading).items():
                    found.setdefault(char, set()).update((molecule, graph, way) for way in ways)
            # Equal sets are one object: comparing large ones costs as much as making them.
            sets = ((char, frozenset(ways)) for char, ways in found.items())
            known = {char: self._sets.setdefault(after, after) for char, after in sets}
            self._ways[read] = known
        return known

    def whole(self, read: _Readings) -> int | None:
        """The molecule that has been written, if it may end here."""
        distance, molecule = self._by_distance(read)[0] if read else (1, 0)
        return molecule if distance == 0 else None

    def nearest(self, read: _Readings, written: int) -> int | None:
        """Characters to the nearest end of a molecule that is not written; None for none."""
        found = self._by_distance(read)
        return next((distance for distance, number in found if not written >> number & 1), None)

    def _by_distance(self, read: _Readings) -> tuple[tuple[int, int], ...]:
        """For each molecule that may still be written its (distance, number), nearest first."""
        known = self._nearest.get(read)
        if known is None:
            if len(self._nearest) >= MAX_REMEMBERED:
                self._nearest.clear()
            distances: dict[int, int] = {}
            for molecule, graph, (trace, rest) in read:
                distance = self._tracings[graph].distance(trace) + len(rest)
                distances[molecule] = min(distance, distances.get(molecule, distance))
            ordered = sorted((distance, molecule) for molecule, distance in distances.items())
            known = self._nearest[read] = tuple(ordered)
        return known


@functools.lru_cache(maxsize=64)
def _language(molecules: tuple[tuple[str, ...], ...]) -> _Language:
    return _Language(molecules)
