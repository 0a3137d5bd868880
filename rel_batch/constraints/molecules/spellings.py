"""The leaf `Spellings`: molecules of a finite set, each in any of several spellings.

    >>> leaf = Spellings((("CCO", "OCC"), ("COC",)), "<s>", "</s>", "\\n")
    >>> from rel_batch.constraints.machine import Machine
    >>> machine = Machine(leaf, {})
    >>> machine.matches("<s>OCC</s>\\n<s>COC</s>"), machine.matches("<s>OCC</s>\\n<s>CCO</s>")
    (True, False)

For the assisted rung: the groups are the isomers that are missing (each at most once), or the
fragments of one molecule. `chem/assisted.py` makes them with RDKit; here they are only strings.

Surprising: without a group nothing but the empty text is admitted.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple, cast

from rel_batch.constraints.expressions import Expression


@dataclass(frozen=True, slots=True)
class Spellings(Expression):
    """One to `most` groups, none twice, each as one of its spellings between two texts.

    Attributes:
        groups: the spellings of each molecule; no spelling is in two groups or starts with the
            first character of `closing` or of `separator` after another one.
        opening, closing: what stands around each molecule; may be empty.
        separator: what stands between two; not empty.
        most: at most this many; None for as many as there are.
    """

    groups: tuple[tuple[str, ...], ...]
    opening: str = ""
    closing: str = ""
    separator: str = "\n"
    most: int | None = None

    def first(self) -> _State:
        return _State("opening", 0, 0) if self.opening else _State("name", 0, 0)

    def step(self, state: Hashable, char: str) -> _State | None:
        where, at, used = _known(state)
        if not self.groups:
            return None
        trie = _trie(self.groups)
        if where == "opening" and self.opening[at] == char:
            return self._after("opening", at + 1, used)
        if where == "closing" and at < len(self.closing) and self.closing[at] == char:
            return _State("closing", at + 1, used)
        if where == "separator" and self.separator[at] == char:
            return self._after("separator", at + 1, used)
        if where == "name":
            following = trie.children[at].get(char)
            if following is not None and trie.nearest(following, used) is not None:
                return _State("name", following, used)
            group = trie.group_at[at]
            if group >= 0 and not used >> group & 1:
                if self.closing:
                    return (
                        _State("closing", 1, used | 1 << group) if self.closing[0] == char else None
                    )
                return self._next(used | 1 << group, char)
        if where == "closing" and at == len(self.closing):
            return self._next(used, char)
        return None

    def is_final(self, state: Hashable) -> bool:
        return self.distance(state) == 0

    def next_chars(self, state: Hashable) -> frozenset[str]:
        where, at, used = _known(state)
        candidates = {self.separator[0], *self.closing[:1]}
        if where == "opening":
            candidates = {self.opening[at]}
        elif where == "closing" and at < len(self.closing):
            candidates = {self.closing[at]}
        elif where == "separator":
            candidates = {self.separator[at]}
        elif where == "name" and self.groups:
            candidates |= _trie(self.groups).children[at].keys()
        return frozenset(c for c in candidates if self.step(_State(where, at, used), c) is not None)

    def distance(self, state: Hashable) -> int:
        """Characters to the nearest end."""
        where, at, used = _known(state)
        if not self.groups:
            return 0
        if where == "closing":
            return len(self.closing) - at
        ahead = {"opening": len(self.opening) - at, "name": 0}.get(
            where, len(self.separator) - at + len(self.opening)
        )
        nearest = _trie(self.groups).nearest(at if where == "name" else 0, used)
        assert nearest is not None
        return ahead + nearest + len(self.closing)

    def text_form(self) -> str:
        shown = " | ".join(repr(group[0]) for group in self.groups)
        return f"spellings({self.opening!r} {shown} {self.closing!r}; separator {self.separator!r})"

    def _next(self, used: int, char: str) -> _State | None:
        """After a molecule: the beginning of the separator, if another molecule may follow."""
        limit = len(self.groups) if self.most is None else min(self.most, len(self.groups))
        if char != self.separator[0] or used.bit_count() >= limit:
            return None
        return self._after("separator", 1, used)

    def _after(self, where: str, at: int, used: int) -> _State:
        if where == "separator" and at == len(self.separator):
            where, at = "opening", 0
        if where == "opening" and at == len(self.opening):
            return _State("name", 0, used)
        return _State(where, at, used)


class _State(NamedTuple):
    """Where in which part; `used` has a bit for each group that was written."""

    where: str
    at: int
    used: int


def _known(state: Hashable) -> _State:
    return cast("_State", state)


class _Trie:
    """All spellings, with the groups that end below each node, nearest first."""

    def __init__(self, groups: tuple[tuple[str, ...], ...]) -> None:
        self.children: list[dict[str, int]] = [{}]
        self.group_at: list[int] = [-1]
        distances: list[dict[int, int]] = [{}]
        for group, spellings in enumerate(groups):
            for spelling in spellings:
                node = 0
                for read, char in enumerate(spelling):
                    self._note(distances[node], group, len(spelling) - read)
                    following = self.children[node].get(char)
                    if following is None:
                        following = self.children[node][char] = len(self.children)
                        self.children.append({})
                        self.group_at.append(-1)
                        distances.append({})
                    node = following
                self._note(distances[node], group, 0)
                self.group_at[node] = group
        self._nearest = [sorted((d, g) for g, d in found.items()) for found in distances]

    @staticmethod
    def _note(found: dict[int, int], group: int, distance: int) -> None:
        found[group] = min(distance, found.get(group, distance))

    def nearest(self, node: int, used: int) -> int | None:
        """Characters from `node` to the nearest end of a group that is not used."""
        free = (distance for distance, group in self._nearest[node] if not used >> group & 1)
        return next(free, None)


@functools.lru_cache(maxsize=64)
def _trie(groups: tuple[tuple[str, ...], ...]) -> _Trie:
    return _Trie(groups)
