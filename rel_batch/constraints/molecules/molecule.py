"""The leaf `Molecule`: strings that RDKit reads as one connected molecule.

    >>> molecule = Molecule()
    >>> state = molecule.first()
    >>> for char in "c1ccccc":
    ...     state = molecule.step(state, char)
    >>> molecule.is_final(state), molecule.ending(state)
    (False, '1')
    >>> molecule.step(state, "(") is None
    False
    >>> molecule.step(state, ")") is None
    True

Which SMILES: one component, no wildcard atoms; all elements in brackets with isotope (three
digits), `@`/`@@`, hydrogens and charge; bonds `-=#$/\\`; ring numbers 0-9 and %10-%99; aromatic
b c n o p s and [as] [se] [si] [te]. At most `MAX_LIVE` atoms may wait for further bonds at once,
which no molecule of a few hundred atoms comes near. RDKit takes a little more (see
`docs/molecules.md`), never less.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rel_batch.constraints.expressions import Expression
from rel_batch.constraints.molecules.native import load_automaton

if TYPE_CHECKING:
    from rel_batch.constraints.token_masks import LeafWalk, TokenTrie

ALPHABET = "".join(
    sorted(set("ABCDEFGHIKLMNOPRSTUVWXYZabcdefghiklmnoprstuvy0123456789()[]%@+-=#$/\\"))
)
_CHARS = frozenset(ALPHABET)
_automaton = functools.cache(load_automaton)


@dataclass(frozen=True, slots=True)
class Molecule(Expression):
    """The SMILES of any connected molecule that RDKit reads."""

    def first(self) -> bytes:
        return _first()

    def step(self, state: Hashable, char: str) -> bytes | None:
        assert isinstance(state, bytes)
        return _automaton().advance(state, ord(char)) if char in _CHARS else None

    def is_final(self, state: Hashable) -> bool:
        return self.distance(state) == 0

    def next_chars(self, state: Hashable) -> frozenset[str]:  # noqa: ARG002
        return _CHARS

    def distance(self, state: Hashable) -> int:
        """Characters that are certainly enough to end the molecule: those of `ending`."""
        assert isinstance(state, bytes)
        return int.from_bytes(state[:8], "little", signed=True)

    def ending(self, state: Hashable) -> str:
        """The ending that proves that the state is no dead end; "" where it is final."""
        assert isinstance(state, bytes)
        return _automaton().ending(state)

    def token_walk(self, state: Hashable, tokens: TokenTrie, node: int = 0) -> LeafWalk:
        """The tokens below `node` that may come next; see `token_masks.LeafWalk`."""
        from rel_batch.constraints.molecules.masks import walk_tokens

        assert isinstance(state, bytes)
        return walk_tokens(_automaton(), state, tokens, node)

    def text_form(self) -> str:
        return "<a SMILES of one molecule>"


@functools.cache
def _first() -> bytes:
    return _automaton().begin()
