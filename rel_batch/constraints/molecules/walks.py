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
    ALIVE,
    AROM,
    BOND,
    CHARGE,
    CUR,
    DIGITS,
    EL,
    LEX,
    MATCHINGS,
    N_AROM,
    N_AROMATIC_BONDS,
    N_BONDED,
    N_CHARGE,
    N_DEGREE,
    N_EDGE_OWES,
    N_EL,
    N_H,
    N_ON_RING,
    N_OPEN,
    N_OXO,
    N_PARENT,
    N_SINGLES,
    N_STACKED,
    NUM_H,
    NUM_MATCHINGS,
    NUM_RINGS,
    NUM_STACK,
    PREV,
    RINGS,
    STACK,
    Array,
    States,
    copy_state,
    native,
    node_at,
)

ENDS_TOKEN, LEAVES = 1, 2
MAX_DEPTH = 64  # longer tokens are not offered inside a molecule
MEMO_ENTRIES = 65536  # three numbers each


@native
def signature(st: Array, words: Array) -> int:
    """Write all that `st` holds to a few `words`; how many."""
    words[0] = st[LEX] | st[EL] << 8 | st[AROM] << 16 | st[NUM_H] << 17 | (st[CHARGE] + 64) << 22
    words[1] = st[DIGITS] | st[PREV] << 4 | st[BOND] << 6 | (st[CUR] + 2) << 9 | st[NUM_STACK] << 16
    words[2] = st[ALIVE]
    words[3] = st[NUM_RINGS] | st[NUM_MATCHINGS] << 8
    count, slot, alive = 4, 0, st[ALIVE]
    while alive != 0:
        if alive & 1:
            n = node_at(slot)
            atom = st[n + N_EL] | st[n + N_AROM] << 7 | (st[n + N_CHARGE] + 64) << 8
            bonds = (st[n + N_H] + 1) | st[n + N_AROMATIC_BONDS] << 4 | st[n + N_SINGLES] << 7
            words[count] = atom | bonds << 15
            if st[n + N_AROM] == 1:  # the degree of other atoms does not matter
                words[count] |= st[n + N_DEGREE] << 27
            flags = st[n + N_STACKED] | st[n + N_ON_RING] << 1 | st[n + N_EDGE_OWES] << 2
            words[count + 1] = flags | st[n + N_OXO] << 3 | st[n + N_OPEN] << 4
            words[count + 1] |= (st[n + N_PARENT] + 1) << 10
            words[count + 2] = st[n + N_BONDED]
            count += 3
        slot += 1
        alive = alive >> 1
    for i in range(st[NUM_RINGS]):
        at = RINGS + 3 * i
        words[count] = st[at] | st[at + 1] << 8 | st[at + 2] << 16
        count += 1
    for i in range(st[NUM_STACK]):
        words[count] = st[STACK + i]
        count += 1
    for i in range(2 * st[NUM_MATCHINGS]):
        words[count] = st[MATCHINGS + i]
        count += 1
    return count


@native
def remembered_length(st: Array, states: States, ending: Array, words: Array, memo: Array) -> int:
    """The length of the ending of `st`, as `complete` has it; looked up by the signature.

    An entry of `memo` is 124 bits that are mixed from the signature, and the length: two states
    are taken for one with a chance that is not worth counting.
    """
    a, b, c, d = 1, 2, 3, 4
    for i in range(signature(st, words)):
        x = (words[i] ^ (words[i] >> 31)) & 2147483647
        a = a * 1540483477 + x
        b = b * 1812433253 + x
        c = c * 1103515245 + x
        d = d * 1664525027 + x
        a = (a ^ (a >> 16)) & 2147483647
        b = (b ^ (b >> 17)) & 2147483647
        c = (c ^ (c >> 18)) & 2147483647
        d = (d ^ (d >> 19)) & 2147483647
    at = 3 * (a % MEMO_ENTRIES)
    first, second = (a << 31) | b, (c << 31) | d
    if memo[at] == first and memo[at + 1] == second:
        return memo[at + 2]
    length = complete(st, states, ending)
    memo[at] = first
    memo[at + 1] = second
    memo[at + 2] = length
    return length


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
    ending: Array,
    found: Array,
    ends_at: Array,
    words: Array,
    memo: Array,
) -> int:
    """Walk nodes `first` to `last` from `st`; how many results were written to `found`.

    A result is three numbers: a node, its kind (0 a token that stays inside, 1 a way out) and
    the length of the ending from there. `path` is scratch, one state for each level of the
    trie and two more (its first one may be `st`); `ends_at` likewise; `states`, `ending`
    and `words` are scratch, `memo` is kept from walk to walk.
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
        length = remembered_length(trial, states, ending, words, memo)
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
    ending: Array,
    found: Array,
    ends_at: Array,
    words: Array,
    memo: Array,
) -> int:
    """`walk` from a packed state."""
    unpack(packed, path[0])
    return walk(
        path[0], chars, end, marks, first, last, path, states, ending, found, ends_at, words, memo
    )
