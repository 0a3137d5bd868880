"""Which tokens may come next: a constraint's machine walked over the trie of a vocabulary.

    masks = TokenMasks(constraint, tokens, trie, MaskCache())
    reader = TokenReader(masks, stop_token_ids=frozenset({1}))
    reader.fill(row, tokens_left=100)      # row: int32[words], bit t of word t // 32 is token t
    reader.accept(token_id)

A token is admitted if its bytes lead to a live state, and a stop token if the text may end. With
`tokens_left`, a token is admitted only if the text can still end after it in time, a byte a token
and the stop token counted, so that no reply ends open because the limit came. Where not even the
nearest end is in reach, the tokens that come nearest are admitted.

Surprising: tokens may end inside a character. The state then holds the bytes of the beginning, and
lives as long as some character that begins so is allowed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from rel_batch.constraints import Constraint
from rel_batch.constraints.expressions import Leaf
from rel_batch.constraints.machine import DEAD, Machine
from rel_batch.constraints.vocabulary import SubTrie, TokenTrie

__all__ = [
    "LeafWalk",
    "MaskCache",
    "SubTrie",
    "TokenLeaf",
    "TokenMasks",
    "TokenReader",
    "TokenTrie",
]

MAX_MACHINE_STATES = 20_000
# From so many tokens on, a mask is kept and written as a whole row: sorting would take longer.
_MANY_TOKENS = 500


@dataclass(frozen=True, slots=True)
class LeafWalk:
    """What a leaf says of the tokens below a node of the trie.

    Attributes:
        ids: int32[n], tokens that end inside the leaf or with it, and may be taken.
        distances: int32[n], the leaf's `distance` after each of them.
        exits: (node, leaf state) where the leaf may end and a token goes on.
    """

    ids: NDArray[np.int32]
    distances: NDArray[np.int32]
    exits: Sequence[tuple[int, Hashable]]


class TokenLeaf(Leaf, Protocol):
    """A leaf that walks the trie itself, because it is faster at it than a step a character."""

    def token_walk(self, state: Hashable, tokens: TokenTrie, node: int = 0) -> LeafWalk | None:
        """The tokens below `node`, or None to be walked character by character."""
        ...


@dataclass(frozen=True, slots=True)
class _Mask:
    """Admitted tokens, and the bytes that each needs to the end after it.

    A token that several ways lead to may be there several times; the nearest end counts. `bits` are
    those of `words`, or of all words where there are many tokens and `words` is None.
    """

    ids: NDArray[np.int32]
    distances: NDArray[np.int32]
    words: NDArray[np.int32] | None
    bits: NDArray[np.int32]
    farthest: int

    @property
    def num_bytes(self) -> int:
        num_words = 0 if self.words is None else len(self.words)
        return 500 + 4 * (2 * len(self.ids) + num_words + len(self.bits))


class MaskCache:
    """The masks of all constraints of a process, the least recently used dropped first."""

    def __init__(self, max_bytes: int = 128 * 2**20) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._masks: OrderedDict[Hashable, _Mask] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> _Mask | None:
        with self._lock:
            mask = self._masks.get(key)
            if mask is not None:
                self._masks.move_to_end(key)
            return mask

    def put(self, key: Hashable, mask: _Mask) -> None:
        with self._lock:
            if key not in self._masks:
                self._masks[key] = mask
                self._num_bytes += mask.num_bytes
            while self._num_bytes > self._max_bytes:
                self._num_bytes -= self._masks.popitem(last=False)[1].num_bytes


class TokenMasks:
    """One constraint over one vocabulary; shared by all requests that have it. Thread-safe.

    A position in the text is a pair: the machine's state, and the bytes of a character that is
    not complete. Positions are valid for one `generation`.
    """

    def __init__(
        self,
        constraint: Constraint,
        tokens: Sequence[bytes | None],
        trie: TokenTrie,
        cache: MaskCache,
    ) -> None:
        if constraint.expression is None:
            raise ValueError("a constraint that admits everything needs no mask")
        self._machine = Machine(
            constraint.expression, dict(constraint.rules), max_states=MAX_MACHINE_STATES
        )
        self._tokens = tokens
        self._trie = trie
        self._cache = cache
        # Told apart from all other constraints in the cache, for as long as it holds masks.
        self._key = object()
        self.lock = threading.RLock()

    @property
    def generation(self) -> int:
        return self._machine.generation

    def start(self) -> tuple[int, bytes]:
        """The position before any token; forgets old states when they have become too many."""
        if self._machine.is_crowded:
            self._machine.forget()
        return self._machine.start, b""

    def is_final(self, position: tuple[int, bytes]) -> bool:
        state, partial = position
        return not partial and self._machine.is_final(state)

    def after(self, position: tuple[int, bytes], token_id: int) -> tuple[int, bytes] | None:
        """The position after a token, or None if it is not admitted."""
        text = self._tokens[token_id] if 0 <= token_id < len(self._tokens) else None
        if not text:
            return None
        state, partial = position
        text = partial + text
        read = 0
        while read < len(text):
            length = _char_length(text[read])
            if read + length > len(text):
                partial = text[read:]
                return (state, partial) if self._characters(state, partial) else None
            try:
                char = text[read : read + length].decode()
            except UnicodeDecodeError:
                return None
            state = self._machine.step(state, char)
            if state == DEAD:
                return None
            read += length
        return state, b""

    def fill(
        self, position: tuple[int, bytes], row: NDArray[np.int32], tokens_left: int | None
    ) -> None:
        """Set the bits of the admitted tokens, and no others. Stop tokens are not among them."""
        key = (self._key, self.generation, position)
        mask = self._cache.get(key)
        if mask is None:
            mask = self._walk(*position)
            self._cache.put(key, mask)
        if tokens_left is None or mask.farthest + 2 <= tokens_left:
            _write(row, mask.words, mask.bits)
            return
        # The token itself, a token a byte to the end, and the stop token.
        in_reach = mask.distances + 2 <= tokens_left
        if not in_reach.any() and not self.is_final(position):
            in_reach = mask.distances == mask.distances.min()
        _write(row, *self._packed(mask.ids[in_reach]))

    def _packed(self, ids: NDArray[np.int32]) -> tuple[NDArray[np.int32] | None, NDArray[np.int32]]:
        """What `_write` sets for these tokens, in any order and any number of times."""
        if len(ids) < _MANY_TOKENS:
            return _packed_words(ids)
        # A tokenizer may know more tokens than the model's row has bits.
        is_admitted = np.zeros(32 * (-(-self._trie.num_rows // 32)), dtype=bool)
        is_admitted[ids] = True
        return None, np.packbits(is_admitted, bitorder="little").view(np.int32)

    def _walk(self, state: int, partial: bytes) -> _Mask:
        machine, trie = self._machine, self._trie
        ids: list[NDArray[np.int32]] = []
        distances: list[NDArray[np.int32]] = []

        def take(node: int, distance: int) -> None:
            found = trie.tokens_at(node)
            if len(found):
                ids.append(found)
                distances.append(np.full(len(found), distance, dtype=np.int32))

        pending = [(0, state, partial)]
        while pending:
            node, state, partial = pending.pop()
            slow: list[int] = []
            is_split = False
            for cell, leaf, leaf_state, rest in machine.cells(state):
                walk = None
                walks_itself = getattr(leaf, "token_walk", None)
                if not partial and walks_itself is not None:
                    walk = cast("LeafWalk | None", walks_itself(leaf_state, trie, node))
                if walk is None:
                    slow.append(cell)
                    continue
                is_split = True
                ids.append(walk.ids)
                distances.append(walk.distances + np.int32(machine.cost_after(rest)))
                if walk.exits:
                    onward = machine.after(rest)
                    pending.extend((exit_node, onward, b"") for exit_node, _ in walk.exits)
            if is_split:
                state = machine.only(slow)
            for char, following in self._characters(state, partial, node):
                encoded = char.encode()[len(partial) :]
                reached: int | None = node
                for read, byte in enumerate(encoded, start=1):
                    reached = trie.children(reached).get(byte)
                    if reached is None:
                        break
                    take(reached, len(encoded) - read + machine.distance(following))
                if reached is not None and trie.end[reached] > reached + 1:
                    pending.append((reached, following, b""))
        every = np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32)
        far = np.concatenate(distances) if ids else every
        return _Mask(every, far, *self._packed(every), int(far.max(initial=0)))

    def _characters(
        self, state: int, partial: bytes, node: int | None = None
    ) -> list[tuple[str, int]]:
        """The characters that begin with `partial` and may come next, with the states after them;
        only those that begin a token's rest where `node` is given."""
        allowed = self._machine.next_chars(state)
        if allowed is None:
            allowed = _ASCII | self._trie.non_ascii
        candidates: Sequence[str]
        if partial:
            candidates = [char for char in allowed if char.encode().startswith(partial)]
        elif node is None:
            candidates = sorted(allowed)
        else:
            children = self._trie.children(node)
            if len(children) < len(allowed):
                candidates = [chr(b) for b in children if b < 0x80 and chr(b) in allowed]
                if max(children, default=0) >= 0x80:
                    candidates += [char for char in allowed if not char.isascii()]
            else:
                candidates = [char for char in allowed if char.encode()[0] in children]
        stepped = ((char, self._machine.step(state, char)) for char in candidates)
        return [(char, following) for char, following in stepped if following != DEAD]


class TokenReader:
    """One request's way through a constraint. Not thread-safe.

    `stop_token_ids` end a text that may end; after one the reader is terminated.
    """

    def __init__(self, masks: TokenMasks, stop_token_ids: frozenset[int]) -> None:
        self._masks = masks
        self._stop_token_ids = stop_token_ids
        self._stop_words, self._stop_bits = _packed_words(
            np.array(list(stop_token_ids), dtype=np.int32)
        )
        self._taken: list[int] = []
        self.is_terminated = False
        with masks.lock:
            self._generation = masks.generation
            self._positions = [masks.start()]

    @property
    def num_taken(self) -> int:
        """Tokens accepted so far, a stop token included."""
        return len(self._taken)

    def accept(self, token_id: int) -> bool:
        """Take a token; False, and nothing changes, if it is not admitted."""
        with self._masks.lock:
            position = self._position()
            if token_id in self._stop_token_ids:
                if self.is_terminated or not self._masks.is_final(position):
                    return False
                self.is_terminated = True
                self._positions.append(position)
            else:
                following = None
                if not self.is_terminated:
                    following = self._masks.after(position, token_id)
                if following is None:
                    return False
                self._positions.append(following)
            self._taken.append(token_id)
            return True

    def rollback(self, num_tokens: int) -> None:
        """Take back the last `num_tokens`."""
        if num_tokens > 0:
            del self._taken[-num_tokens:]
            del self._positions[-num_tokens:]
            self.is_terminated = False

    def fill(self, row: NDArray[np.int32], tokens_left: int | None) -> None:
        """Set the bits of the admitted tokens in a row of vLLM's bit mask, and no others."""
        with self._masks.lock:
            position = self._position()
            self._masks.fill(position, row, tokens_left)
            if self._masks.is_final(position):
                row[self._stop_words] |= self._stop_bits

    def _position(self) -> tuple[int, bytes]:
        """The present position; read again where the machine has forgotten the old ones."""
        if self._generation != self._masks.generation:
            positions = [self._masks.start()]
            self._generation = self._masks.generation
            for token_id in self._taken:
                following = (
                    positions[-1]
                    if token_id in self._stop_token_ids
                    else self._masks.after(positions[-1], token_id)
                )
                assert following is not None, "a token that was admitted is so again"
                positions.append(following)
            self._positions = positions
        return self._positions[-1]


_ASCII = frozenset(chr(code) for code in range(0x80))


def _char_length(lead: int) -> int:
    if lead < 0x80:
        return 1
    return 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2


def _write(
    row: NDArray[np.int32], words: NDArray[np.int32] | None, bits: NDArray[np.int32]
) -> None:
    """Set the bits of these words, or of the first ones where none are named, and no others."""
    if words is None:
        row[: len(bits)] = bits
        row[len(bits) :] = 0
    else:
        row.fill(0)
        row[words] = bits


def _packed_words(ids: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Words of a bit mask and their bits."""
    if not len(ids):
        none = np.zeros(0, dtype=np.int32)
        return none, none
    ids = np.sort(ids)
    words = ids >> 5
    bits = np.uint32(1) << (ids & 31).astype(np.uint32)
    starts = np.flatnonzero(np.r_[True, words[1:] != words[:-1]])
    return words[starts], np.bitwise_or.reduceat(bits, starts).view(np.int32)
