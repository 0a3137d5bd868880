"""States as a few words, and what is remembered of the search for their endings.

`completion.py` asks for every state that it comes to. What it then does depends on the state alone,
so the outcome of a search inside another one is used as it is, and counts as if it had been made:
what is found does not depend on what is remembered.

Surprising: an entry holds no state but 126 bits mixed from one, so two states are taken for one
with a chance that is not worth counting. Entries overwrite each other.
"""

from __future__ import annotations

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
    native,
    node_at,
)

MEMO_ENTRIES = 65536  # three numbers each
# Outcomes: an ending was found; every way was tried; the search was given up.
FOUND, NONE_LEFT, GIVEN_UP = 1, 2, 3
# where the numbers beside the outcome begin: the length of the ending, the characters tried in
# vain, and how far the search came
LENGTH, WASTED, DEEP = 2, 10, 20


@native
def signature(st: Array, words: Array) -> int:
    """Write all that `st` holds to a few `words`, from place 2 on; how many are in use."""
    words[2] = st[LEX] | st[EL] << 8 | st[AROM] << 16 | st[NUM_H] << 17 | (st[CHARGE] + 64) << 22
    words[3] = st[DIGITS] | st[PREV] << 4 | st[BOND] << 6 | (st[CUR] + 2) << 9 | st[NUM_STACK] << 16
    words[4] = st[ALIVE]
    words[5] = st[NUM_RINGS] | st[NUM_MATCHINGS] << 8
    count, slot, alive = 6, 0, st[ALIVE]
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
def sign(st: Array, words: Array) -> None:
    """Mix all that `st` holds to two numbers, the first of `words`; the others are scratch."""
    a, b = 1, 2
    for i in range(2, signature(st, words)):
        a = ((a ^ words[i]) * 2862933555777941757) & 9223372036854775807
        b = ((b + words[i]) * 3202034522624059733) & 9223372036854775807
        a = a ^ (a >> 29)
        b = b ^ (b >> 31)
    words[0], words[1] = a, b


@native
def recall(first: int, second: int, memo: Array) -> int:
    """What `remember` wrote of the state with this signature; 0 for nothing."""
    at = 3 * (first % MEMO_ENTRIES)
    if memo[at] == first and memo[at + 1] == second:
        return memo[at + 2]
    return 0


@native
def remember(
    first: int, second: int, memo: Array, outcome: int, length: int, wasted: int, deepest: int
) -> None:
    """How a search from that state went, with the numbers that `completion.py` counts by."""
    at = 3 * (first % MEMO_ENTRIES)
    memo[at], memo[at + 1] = first, second
    memo[at + 2] = outcome | length << LENGTH | wasted << WASTED | deepest << DEEP
