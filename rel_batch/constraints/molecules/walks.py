"""Walks a state over a trie of the vocabulary: which tokens may come next.

The trie is flat, in depth-first order (`TokenTrie` in `token_masks.py`): node `i` has the
character `chars[i]`, its subtree ends before `end[i]`, and `marks[i]` says whether a token ends
there (1) and whether the full trie goes on from there with characters no molecule has (2).
"""

from __future__ import annotations

from rel_batch.constraints.molecules.automaton import (
    step,
)
from rel_batch.constraints.molecules.completion import (
    complete,
)
from rel_batch.constraints.molecules.packing import (
    unpack,
)
from rel_batch.constraints.molecules.states import (
    Array,
    States,
    copy_state,
    native,
)

ENDS_TOKEN, LEAVES = 1, 2
MAX_DEPTH = 64  # longer tokens are not offered inside a molecule


@native
def walk(
    st: Array,
    chars: Array,
    end: Array,
    marks: Array,
    first: int,
    last: int,
    path: States,
    states: States,
    notes: Array,
    found: Array,
    ends_at: Array,
    words: Array,
    memo: Array,
) -> int:
    """Walk nodes `first` to `last` from `st`; how many results were written to `found`.

    A result is three numbers: a node, its kind (0 a token that stays inside, 1 a way out) and
    the length of the ending from there. `path` is scratch, one state for each level of the
    trie and two more (its first one may be `st`); `ends_at` likewise; `states`, `notes`,
    `words` and `memo` are those of `complete`.
    """
    depth, count, node = 0, 0, first
    copy_state(path[0], st)
    ends_at[0] = last
    while node < last:
        while node >= ends_at[depth]:
            depth -= 1
        trial = path[depth + 1]
        copy_state(trial, path[depth])
        if depth >= MAX_DEPTH or not step(trial, chars[node]):
            node = end[node]
            continue
        # An accepted token must be accepted character by character, so every node is asked.
        length = complete(trial, states, notes, words, memo, 0)
        if length < 0:
            node = end[node]
            continue
        if marks[node] & LEAVES and length == 0:
            found[3 * count], found[3 * count + 1], found[3 * count + 2] = node, 1, 0
            count += 1
        if marks[node] & ENDS_TOKEN:
            found[3 * count], found[3 * count + 1], found[3 * count + 2] = node, 0, length
            count += 1
        depth += 1
        ends_at[depth] = end[node]
        node += 1
    return count


@native
def packed_walk(
    packed: Array,
    chars: Array,
    end: Array,
    marks: Array,
    first: int,
    last: int,
    path: States,
    states: States,
    notes: Array,
    found: Array,
    ends_at: Array,
    words: Array,
    memo: Array,
) -> int:
    """`walk` from a packed state."""
    unpack(packed, path[0])
    return walk(
        path[0], chars, end, marks, first, last, path, states, notes, found, ends_at, words, memo
    )
