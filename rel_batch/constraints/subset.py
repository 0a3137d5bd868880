"""Names out of a list, each at most once: a leaf that keeps the names that were used.

    >>> leaf = Subset(("1", "12", "2"), ", ")
    >>> from rel_batch.constraints.machine import Machine
    >>> machine = Machine(leaf, {})
    >>> machine.matches("12, 1"), machine.matches("1, 1"), machine.matches("")
    (True, False, False)

In ascending order (the order of `names`) it is also a linear grammar, `ascending_rules`. In any
order it is no grammar of a usable size: which names are left is one of 2^N states.

Surprising: where one name is the beginning of another, or holds the separator, a text can be read
in several ways, and a state keeps all of them. Only names built out of each other can make them
many; past `MAX_READINGS` the rest are dropped, so that a few strange lists are refused, none is
admitted wrongly, and time stays bounded.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal, cast

from rel_batch.constraints.expressions import (
    Expression,
    OneOf,
    Rule,
    Seq,
    Text,
    num_bytes,
    optional,
)

MAX_READINGS = 64

Order = Literal["any", "ascending"]

# xgrammar compiles an ascending list of 250 names in 0.4 s, of 500 in 1.9 s, of 10,000 not in 60 s.
MAX_LINEAR_NAMES = 500


@dataclass(frozen=True)
class Subset(Expression):
    """Between `least` (0 or 1) and `most` of `names`, none twice, with `separator` in between.

    Attributes:
        names: distinct, not empty; their order is what "ascending" means.
        separator: not empty.
        order: whether names may come in any order or only in that of `names`.
        most: at most this many; None for as many as there are.

    Raises ValueError for names or bounds that make no sense.
    """

    names: tuple[str, ...]
    separator: str
    order: Order = "any"
    least: Literal[0, 1] = 1
    most: int | None = None
    _trie: _NameTrie = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.names or not all(self.names) or len(set(self.names)) != len(self.names):
            raise ValueError("names must be distinct and not empty")
        if not self.separator:
            raise ValueError("the separator must not be empty")
        if self.most is not None and self.most < 1:
            raise ValueError("most must be at least 1")
        object.__setattr__(self, "_trie", _name_trie(self.names))

    def first(self) -> _State:
        return frozenset({_START})

    def step(self, state: Hashable, char: str) -> _State | None:
        trie = self._trie
        following: set[_Reading] = set()
        for reading in _readings(state):
            if reading.in_separator:
                if self.separator[reading.in_separator] == char:
                    following.add(self._in_separator(reading, reading.in_separator + 1))
                continue
            node = trie.children[reading.node].get(char)
            if node is not None and trie.has_free(node, reading.used):
                following.add(_Reading(reading.used, reading.count, node, 0))
            if self.separator[0] == char and self._ends_name(reading):
                closed = self._closed(reading)
                if closed is not None:
                    following.add(self._in_separator(closed, 1))
        if len(following) > MAX_READINGS:
            following = set(sorted(following)[:MAX_READINGS])
        return frozenset(following) if following else None

    def is_final(self, state: Hashable) -> bool:
        return any(
            self._ends_name(reading) or (reading == _START and self.least == 0)
            for reading in _readings(state)
        )

    def next_chars(self, state: Hashable) -> frozenset[str]:
        trie = self._trie
        found: set[str] = set()
        for reading in _readings(state):
            if reading.in_separator:
                found.add(self.separator[reading.in_separator])
                continue
            found.update(
                char
                for char, node in trie.children[reading.node].items()
                if trie.has_free(node, reading.used)
            )
            if self._ends_name(reading) and self._closed(reading) is not None:
                found.add(self.separator[0])
        return frozenset(found)

    def distance(self, state: Hashable) -> int:
        if self.is_final(state):
            return 0
        trie = self._trie
        return min(
            num_bytes(self.separator[reading.in_separator :]) + trie.shortest_free(0, reading.used)
            if reading.in_separator
            else trie.shortest_free(reading.node, reading.used) - trie.depth[reading.node]
            for reading in _readings(state)
        )

    def text_form(self) -> str:
        shown = " | ".join(repr(name) for name in self.names)
        bounds = f"{self.least}..{self.most if self.most is not None else len(self.names)}"
        return f"subset({shown}; separator {self.separator!r}; {self.order} order; {bounds})"

    @property
    def is_linear(self) -> bool:
        """Whether it is also a grammar of linear size: all names, in ascending order.

        Backends compile a long one in more than linear time, so above a size it is none.
        """
        whole = (self.most or len(self.names)) >= len(self.names)
        return self.order == "ascending" and whole and len(self.names) <= MAX_LINEAR_NAMES

    def ascending_rules(self, prefix: str) -> tuple[Expression, tuple[tuple[str, Expression], ...]]:
        """The same language as a linear grammar: (start, rules named `prefix`0, `prefix`1, ...).

        Raises ValueError in any order, or where `most` is less than the number of names: then
        no grammar of linear size says it.
        """
        if not self.is_linear:
            raise ValueError("only a whole list in ascending order is a linear grammar")
        count = len(self.names)
        rules: list[tuple[str, Expression]] = []
        for i, name in enumerate(self.names):
            last = i + 1 == count
            onward = Seq((Text(self.separator), Rule(f"{prefix}{i + 1}")))
            chosen = Text(name) if last else Seq((Text(name), optional(onward)))
            skipped = () if last else (Rule(f"{prefix}{i + 1}"),)
            rules.append((f"{prefix}{i}", OneOf((chosen, *skipped))))
        start: Expression = Rule(f"{prefix}0")
        return (optional(start) if self.least == 0 else start), tuple(rules)

    def _ends_name(self, reading: _Reading) -> bool:
        name = self._trie.name_at[reading.node]
        return not reading.in_separator and name >= 0 and not reading.used >> name & 1

    def _closed(self, reading: _Reading) -> _Reading | None:
        """After the name that ends here, if another one may follow."""
        count = reading.count + 1
        if self.most is not None and count >= self.most:
            return None
        trie = self._trie
        name = trie.name_at[reading.node]
        used = reading.used | (1 << name if self.order == "any" else trie.up_to[name])
        return _Reading(used, count, 0, 0) if trie.has_free(0, used) else None

    def _in_separator(self, reading: _Reading, num_read: int) -> _Reading:
        done = num_read == len(self.separator)
        return _Reading(reading.used, reading.count, 0, 0 if done else num_read)


@dataclass(frozen=True, slots=True, order=True)
class _Reading:
    """One way to read the text so far.

    `used` has a bit for each name that must not come any more, by its rank among the sorted
    names; `node` is where the present name stands in the trie; `in_separator` counts the
    characters read of a separator that is not complete.
    """

    used: int
    count: int
    node: int
    in_separator: int


_State = frozenset[_Reading]
_START = _Reading(0, 0, 0, 0)


def _readings(state: Hashable) -> _State:
    return cast("_State", state)


@dataclass(frozen=True)
class _NameTrie:
    """The names as a trie; the names below a node are a range of the sorted names."""

    children: list[dict[str, int]]
    # Rank of the name that ends at a node, or -1; bytes read from the root; range of ranks.
    name_at: list[int]
    depth: list[int]
    below: list[tuple[int, int]]
    # By rank: the names that come no later in the given order, as bits; and lengths in bytes.
    up_to: list[int]
    num_bytes: list[int]
    ranks_by_length: list[int]

    def has_free(self, node: int, used: int) -> bool:
        """Whether a name at or below `node` is not used."""
        low, high = self.below[node]
        every = (1 << (high - low)) - 1
        return (used >> low) & every != every

    def shortest_free(self, node: int, used: int) -> int:
        """Bytes of the shortest name at or below `node` that is not used."""
        low, high = self.below[node]
        if high - low <= 64:
            free = (rank for rank in range(low, high) if not used >> rank & 1)
            return min(self.num_bytes[rank] for rank in free)
        return next(
            self.num_bytes[rank]
            for rank in self.ranks_by_length
            if low <= rank < high and not used >> rank & 1
        )


@functools.lru_cache(maxsize=256)
def _name_trie(names: tuple[str, ...]) -> _NameTrie:
    ranked = sorted(names)
    rank_of = {name: rank for rank, name in enumerate(ranked)}
    children: list[dict[str, int]] = [{}]
    name_at, depth, below = [-1], [0], [(0, len(ranked))]
    for rank, name in enumerate(ranked):
        node = 0
        for char in name:
            following = children[node].get(char)
            if following is None:
                following = children[node][char] = len(children)
                children.append({})
                name_at.append(-1)
                depth.append(depth[node] + num_bytes(char))
                below.append((rank, rank))
            node = following
            below[node] = (below[node][0], rank + 1)
        name_at[node] = rank
    up_to = [0] * len(names)
    gone = 0
    for name in names:
        gone |= 1 << rank_of[name]
        up_to[rank_of[name]] = gone
    lengths = [num_bytes(name) for name in ranked]
    by_length = sorted(range(len(ranked)), key=lengths.__getitem__)
    return _NameTrie(children, name_at, depth, below, up_to, lengths, by_length)
