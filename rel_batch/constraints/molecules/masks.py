"""Which tokens of a vocabulary may come next inside a molecule.

The vocabulary's trie is cut down once to the characters of SMILES (some thousand of the nodes of
a vocabulary of 262,144 tokens); a walk visits the part that the automaton lets it. Walks are kept
for the states asked last: `MAX_WALKS` of them, at most a few kilobytes each.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from rel_batch.constraints.molecules.molecule import ALPHABET
from rel_batch.constraints.molecules.native import NativeAutomaton, PythonAutomaton
from rel_batch.constraints.molecules.walks import ENDS_TOKEN, LEAVES

if TYPE_CHECKING:
    from rel_batch.constraints.token_masks import LeafWalk, TokenTrie

MAX_WALKS = 4096
# Stands for a molecule that is complete: where a token leaves the leaf, only that matters.
COMPLETE = bytes(8)

_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_LEAVING = np.array([c not in _WORD and chr(c) not in ALPHABET for c in range(256)])


class _Vocabulary:
    """A token trie cut down to the characters of SMILES, and the walks over it that are kept."""

    def __init__(self, tokens: TokenTrie) -> None:
        sub = tokens.restrict(ALPHABET)
        self.full_node = np.asarray(sub.full_node, dtype=np.int64)
        self.chars = np.asarray(sub.byte, dtype=np.int64)
        self.end = np.asarray(sub.end, dtype=np.int64)
        self.first_token = np.asarray(tokens.first_token, dtype=np.int64)
        self.order = np.asarray(tokens.order, dtype=np.int32)
        counts = self.first_token[self.full_node + 1] - self.first_token[self.full_node]
        self.marks = np.where(counts > 0, ENDS_TOKEN, 0).astype(np.int64)
        self._mark_ways_out(np.asarray(tokens.byte), np.asarray(tokens.end))
        self.sub_node = {int(full): node for node, full in enumerate(self.full_node)}
        self.walks: OrderedDict[tuple[bytes, int], LeafWalk] = OrderedDict()
        self.lock = threading.Lock()

    def _mark_ways_out(self, byte: Any, end: Any) -> None:
        for node, full in enumerate(self.full_node):
            child = int(full) + 1
            while child < end[full]:
                if node > 0 and _LEAVING[byte[child]]:
                    self.marks[node] |= LEAVES
                    break
                child = int(end[child])


_vocabularies: weakref.WeakKeyDictionary[TokenTrie, _Vocabulary] = weakref.WeakKeyDictionary()


def walk_tokens(
    automaton: NativeAutomaton | PythonAutomaton, state: bytes, tokens: TokenTrie, node: int
) -> LeafWalk:
    """The tokens below `node` of the full trie that may come next in `state`."""
    vocabulary = _vocabularies.get(tokens)
    if vocabulary is None:
        vocabulary = _vocabularies[tokens] = _Vocabulary(tokens)
    key = (state, node)
    with vocabulary.lock:
        known = vocabulary.walks.get(key)
        if known is not None:
            vocabulary.walks.move_to_end(key)
            return known
    from rel_batch.constraints.token_masks import LeafWalk

    start = vocabulary.sub_node.get(node)
    if start is None:
        return LeafWalk(np.empty(0, np.int32), np.empty(0, np.int32), [])
    found = automaton.walk(state, vocabulary, start + 1, int(vocabulary.end[start]))
    inside = found[found[:, 1] == 0]
    full = vocabulary.full_node[inside[:, 0]]
    firsts = vocabulary.first_token[full]
    counts = vocabulary.first_token[full + 1] - firsts
    starts: Any = np.repeat(firsts - np.cumsum(counts) + counts, counts)
    offsets = starts + np.arange(int(counts.sum()))
    exits = found[found[:, 1] == 1]
    walk = LeafWalk(
        vocabulary.order[offsets],
        np.repeat(inside[:, 2], counts).astype(np.int32),
        [(int(vocabulary.full_node[row[0]]), COMPLETE) for row in exits],
    )
    with vocabulary.lock:
        vocabulary.walks[key] = walk
        while len(vocabulary.walks) > MAX_WALKS:
            vocabulary.walks.popitem(last=False)
    return walk
