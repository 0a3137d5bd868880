"""A tokenizer's vocabulary as bytes, in a trie that a matcher can walk.

    tokens = token_trie(token_bytes(tokenizer), num_rows)

Byte-level and byte-fallback (sentencepiece) vocabularies are understood, tokens that hold a part
of a character and several tokens with the same bytes included; special tokens and tokens without
bytes are in no trie, so no constraint ever admits them.

Surprising: nodes are numbered in depth-first order of sorted bytes. The children of a node start
at node + 1 and each next one at the `end` of the one before; the tokens of a node and all below it
are one slice of `order`.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PROBES = ("<smiles>c1ccc(Cl)cc1[N+](=O)[O-]</smiles>", 'Yes: taxon_1, 22\n{"a":[0,1]}', "é日本😀")


class VocabularyError(ValueError):
    """It cannot be told which bytes the tokens stand for; the message says why."""


def token_bytes(tokenizer: Any) -> list[bytes | None]:
    """What each token writes, by id; None for special tokens and ids without a token.

    `tokenizer` is a fast Hugging Face tokenizer. Raises VocabularyError.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    result: list[bytes | None] = [None] * (max(vocabulary.values()) + 1)
    added = tokenizer.added_tokens_decoder
    to_bytes = _decoder(vocabulary)
    for token, token_id in vocabulary.items():
        result[token_id] = token.encode() if token_id in added else to_bytes(token)
    for token_id, token in added.items():
        if token.special:
            result[token_id] = None
    for token_id in tokenizer.all_special_ids:
        result[token_id] = None
    for probe in _PROBES:
        token_ids: list[int] = tokenizer.encode(probe, add_special_tokens=False)
        written = b"".join(result[token_id] or b"" for token_id in token_ids)
        # Some tokenizers put a space before a text.
        if written.removeprefix(b" ") != probe.encode():
            raise VocabularyError(
                f"the tokens of {probe!r} seem to write {written.decode(errors='replace')!r}"
            )
    return result


def _decoder(vocabulary: dict[str, int]) -> Callable[[str], bytes]:
    if sum(f"<0x{byte:02X}>" in vocabulary for byte in range(256)) >= 128:
        return _byte_fallback
    char_bytes = _byte_level_chars()
    if sum(char in vocabulary for char in char_bytes) >= 128:

        def byte_level(token: str) -> bytes:
            if all(char in char_bytes for char in token):
                return bytes(char_bytes[char] for char in token)
            return token.encode()

        return byte_level
    raise VocabularyError("the vocabulary is neither byte-level nor byte-fallback")


def _byte_fallback(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes((int(token[3:5], 16),))
    return token.replace("\u2581", " ").encode()


@functools.cache
def _byte_level_chars() -> dict[str, int]:
    """The byte of each character of GPT-2's alphabet: printable Latin-1 stands for itself, the
    other bytes for the characters from U+0100 on, in order."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(own)]
    return {chr(b): b for b in own} | {chr(0x100 + i): b for i, b in enumerate(rest)}


@dataclass(frozen=True)
class SubTrie:
    """The nodes of a trie that a few characters reach; `full_node` are their numbers there."""

    byte: NDArray[np.uint8]
    end: NDArray[np.int32]
    full_node: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TokenTrie:
    """The tokens of a vocabulary by their bytes.

    Attributes:
        byte: uint8[n], the last byte on the way to a node; node 0 is the root.
        end: int32[n], one past the last node below a node.
        order: int32[t], token ids sorted by bytes.
        first_token: int32[n + 1]; the tokens that end exactly at node k are
            order[first_token[k] : first_token[k + 1]].
        num_rows: width of the model's logits; no token id reaches it.
    """

    byte: NDArray[np.uint8]
    end: NDArray[np.int32]
    order: NDArray[np.int32]
    first_token: NDArray[np.int32]
    num_rows: int
    _children: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    _restricted: dict[str, SubTrie] = field(default_factory=dict[str, SubTrie])

    def children(self, node: int) -> dict[int, int]:
        """The child of `node` for each byte that has one. Remembered for every node asked."""
        found = self._children.get(node)
        if found is None:
            found = self._children[node] = dict(self._iter_children(node))
        return found

    def _iter_children(self, node: int) -> Iterator[tuple[int, int]]:
        child, end = node + 1, int(self.end[node])
        while child < end:
            yield int(self.byte[child]), child
            child = int(self.end[child])

    def tokens_at(self, node: int) -> NDArray[np.int32]:
        """Ids of the tokens that end exactly at `node`."""
        return self.order[self.first_token[node] : self.first_token[node + 1]]

    def restrict(self, chars: str) -> SubTrie:
        """The sub-trie that only these ASCII characters reach. Remembered."""
        found = self._restricted.get(chars)
        if found is None:
            found = self._restricted[chars] = self._restrict(chars)
        return found

    def _restrict(self, chars: str) -> SubTrie:
        allowed = {ord(char) for char in chars}
        nodes: list[int] = []
        ends: list[int] = []
        closing: list[tuple[int, int]] = []  # (end in the full trie, position here)
        node, last = 0, len(self.byte)
        while node < last:
            while closing and node >= closing[-1][0]:
                ends[closing.pop()[1]] = len(nodes)
            if node and int(self.byte[node]) not in allowed:
                node = int(self.end[node])
                continue
            closing.append((int(self.end[node]), len(nodes)))
            nodes.append(node)
            ends.append(0)
            node += 1
        while closing:
            ends[closing.pop()[1]] = len(nodes)
        full_node = np.array(nodes, dtype=np.int32)
        return SubTrie(self.byte[full_node], np.array(ends, dtype=np.int32), full_node)

    @functools.cached_property
    def non_ascii(self) -> frozenset[str]:
        """The non-ASCII characters that some token holds whole."""
        found: set[str] = set()
        pending: list[tuple[int, bytes]] = [(0, b"")]
        while pending:
            node, partial = pending.pop()
            for byte, child in self._iter_children(node):
                if byte < 0x80:
                    pending.append((child, b""))
                    continue
                now = partial + bytes((byte,)) if byte < 0xC0 else bytes((byte,))
                try:
                    found.add(now.decode())
                    now = b""
                except UnicodeDecodeError:
                    pass
                pending.append((child, now[-4:]))
        return frozenset(found)


def token_trie(tokens: Sequence[bytes | None], num_rows: int) -> TokenTrie:
    """The trie of all tokens with an id below `num_rows`."""
    order = sorted(
        (token_id for token_id, text in enumerate(tokens[:num_rows]) if text),
        key=lambda token_id: tokens[token_id] or b"",
    )
    byte, end, first_token = bytearray(1), array("i", [0]), array("i", [0])
    path = [0]  # nodes on the way to the token before
    before = b""
    for position, token_id in enumerate(order):
        text = tokens[token_id] or b""
        shared = 0
        limit = min(len(text), len(before))
        while shared < limit and text[shared] == before[shared]:
            shared += 1
        while len(path) > shared + 1:
            end[path.pop()] = len(byte)
        for value in text[shared:]:
            path.append(len(byte))
            byte.append(value)
            end.append(0)
            first_token.append(position)
        before = text
    for node in path:
        end[node] = len(byte)
    first_token.append(len(order))
    return TokenTrie(
        np.frombuffer(bytes(byte), dtype=np.uint8),
        np.frombuffer(end, dtype=np.int32),
        np.array(order, dtype=np.int32),
        np.frombuffer(first_token, dtype=np.int32),
        num_rows,
    )
