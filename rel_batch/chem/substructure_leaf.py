"""The leaf `Substructure`: SMILES of the connected substructures of one molecule.

    >>> leaf = Substructure("CC(=O)Oc1ccccc1", min_atoms=2)
    >>> from rel_batch.constraints.machine import Machine
    >>> machine = Machine(leaf, {})
    >>> [machine.matches(text) for text in ("c1ccccc1O", "O=CO", "CCC", "C", "c1cccc1")]
    [True, True, False, False, False]

For the assisted rung of REL-C2 and C4. A string is admitted exactly if it can be laid over the
molecule (`substructure_walks.py`) and RDKit finds it there, by the function that scores it.

A prefix is admitted only together with an ending that makes it such a string: the *witness*, which
is a part of the state. So there are no dead ends, and who follows the witness arrives.

Surprising: this leaf needs RDKit where it masks tokens, and is Python alone. It is much slower
than `molecule` where a molecule is new, and a prefix whose ending is not among the few that are
tried is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple, cast

from rel_batch.chem.substructure_walks import Reading, Walks
from rel_batch.constraints.expressions import Expression

# A prefix that can be laid over the molecule in more ways is refused, unless its witness says so.
MAX_READINGS = 2_000
# Of the ways in which a prefix is laid over the molecule, those that an ending is sought for.
MAX_TRIED = 40
# Steps that one molecule remembers.
MAX_REMEMBERED = 50_000


@dataclass(frozen=True, slots=True)
class Substructure(Expression):
    """A connected substructure of `molecule` with at least `min_atoms` heavy atoms.

    `molecule` is as RDKit writes it, without stereo and isotopes.
    """

    molecule: str
    min_atoms: int

    def first(self) -> _State:
        return _language(self.molecule, self.min_atoms).first

    def step(self, state: Hashable, char: str) -> _State | None:
        language = _language(self.molecule, self.min_atoms)
        return language.step(cast("_State", state), char)

    def is_final(self, state: Hashable) -> bool:
        language = _language(self.molecule, self.min_atoms)
        return language.is_final(cast("_State", state))

    def next_chars(self, state: Hashable) -> frozenset[str]:  # noqa: ARG002
        return _language(self.molecule, self.min_atoms).chars

    def distance(self, state: Hashable) -> int:
        """Characters of an ending; 0 where the text may end."""
        return 0 if self.is_final(state) else len(cast("_State", state).witness)

    def text_form(self) -> str:
        return f"<a substructure of {self.molecule} of at least {self.min_atoms} atoms>"


class _State(NamedTuple):
    readings: frozenset[Reading]
    witness: str


class _Language:
    """The substructures of one molecule."""

    def __init__(self, molecule: str, min_atoms: int) -> None:
        self._walks = Walks(molecule, min_atoms)
        self.chars = self._walks.chars
        self._steps: dict[tuple[_State, str], _State | None] = {}
        readings = frozenset(((self._walks.start, ""),))
        self.first = _State(readings, self._witness(readings) or "")

    @property
    def is_empty(self) -> bool:
        return not self.first.witness

    def step(self, state: _State, char: str) -> _State | None:
        key = (state, char)
        if key not in self._steps:
            if len(self._steps) >= MAX_REMEMBERED:
                self._steps.clear()
            self._steps[key] = self._step(state, char)
        return self._steps.get(key)

    def _step(self, state: _State, char: str) -> _State | None:
        steps = self._walks.steps
        readings = frozenset(after for one in state.readings for after in steps(one, char))
        if state.witness[:1] == char:
            return _State(readings, state.witness[1:])
        if not 0 < len(readings) <= MAX_READINGS:
            return None
        witness = self._witness(readings)
        return None if witness is None else _State(readings, witness)

    def _witness(self, readings: frozenset[Reading]) -> str | None:
        """An ending of one of the readings."""
        for trace, rest in sorted(readings)[:MAX_TRIED]:
            ending = self._walks.ending(trace)
            if ending is not None:
                return rest + ending
        return None

    def is_final(self, state: _State) -> bool:
        return any(not rest and self._walks.is_whole(trace) for trace, rest in state.readings)


@functools.lru_cache(maxsize=256)
def _language(molecule: str, min_atoms: int) -> _Language:
    return _Language(molecule, min_atoms)


def has_substructure(molecule: str, min_atoms: int) -> bool:
    """Whether the leaf admits anything."""
    return not _language(molecule, min_atoms).is_empty
