"""States as short, comparable values.

`pack` writes the part of a state that is in use, with the live atoms renumbered in an order that
the prefix does not show (those below open branches, the current one, those with open rings, the
forks), so that prefixes which can only go on alike have equal packed states.
"""

from __future__ import annotations

from rel_batch.constraints.molecules.automaton import (
    step,
)
from rel_batch.constraints.molecules.completion import (
    complete,
)
from rel_batch.constraints.molecules.states import (
    ALIVE,
    CUR,
    MATCHINGS,
    N_AROM,
    N_BONDED,
    N_DEGREE,
    N_PARENT,
    NODES,
    NUM_MATCHINGS,
    NUM_RINGS,
    NUM_STACK,
    RINGS,
    STACK,
    WIDTH,
    Array,
    States,
    native,
    node_at,
    start,
)
from rel_batch.constraints.molecules.tree import (
    order_slots,
    renumbered,
)

LENGTH_AT = 0  # in front of a packed state: the length of its ending


@native
def place_of(slot: int, order: Array, count: int) -> int:
    """The place of a slot in `order`; numbers that are no slot stay as they are."""
    place = slot
    for i in range(count):
        if slot >= 0 and order[i] == slot:
            place = i
    return place


@native
def pack(st: Array, packed: Array, order: Array) -> int:
    """Write `st` to `packed`, from place 1 on; how many places are in use."""
    count = order_slots(st, order)
    at = 1
    for i in range(NODES):
        packed[at + i] = st[i]
    packed[at + CUR] = place_of(st[CUR], order, count)
    packed[at + ALIVE] = count
    at += NODES
    for k in range(count):
        n = node_at(order[k])
        for i in range(WIDTH):
            packed[at + i] = st[n + i]
        if st[n + N_AROM] == 0:
            packed[at + N_DEGREE] = 0  # matters to aromatic atoms only
        packed[at + N_PARENT] = place_of(st[n + N_PARENT], order, count)
        packed[at + N_BONDED] = renumbered(st[n + N_BONDED], order, count)
        at += WIDTH
    for i in range(st[NUM_RINGS]):
        packed[at] = st[RINGS + 3 * i]
        packed[at + 1] = place_of(st[RINGS + 3 * i + 1], order, count)
        packed[at + 2] = st[RINGS + 3 * i + 2]
        at += 3
    for i in range(st[NUM_STACK]):
        packed[at] = place_of(st[STACK + i], order, count)
        at += 1
    first = at
    for i in range(st[NUM_MATCHINGS]):
        atoms = renumbered(st[MATCHINGS + 2 * i], order, count)
        edges = renumbered(st[MATCHINGS + 2 * i + 1], order, count)
        place = at
        while place > first and (
            packed[place - 2] > atoms or (packed[place - 2] == atoms and packed[place - 1] > edges)
        ):
            packed[place] = packed[place - 2]
            packed[place + 1] = packed[place - 1]
            place -= 2
        packed[place] = atoms
        packed[place + 1] = edges
        at += 2
    return at


@native
def unpack(packed: Array, st: Array) -> None:
    """Make `st` the state that was packed."""
    at = 1
    for i in range(NODES):
        st[i] = packed[at + i]
    count = st[ALIVE]
    st[ALIVE] = (1 << count) - 1
    at += NODES
    for i in range(count * WIDTH):
        st[NODES + i] = packed[at + i]
    at += count * WIDTH
    for i in range(3 * st[NUM_RINGS]):
        st[RINGS + i] = packed[at + i]
    at += 3 * st[NUM_RINGS]
    for i in range(st[NUM_STACK]):
        st[STACK + i] = packed[at + i]
    at += st[NUM_STACK]
    for i in range(2 * st[NUM_MATCHINGS]):
        st[MATCHINGS + i] = packed[at + i]


@native
def begin(packed: Array, st: Array, states: States, notes: Array, words: Array, memo: Array) -> int:
    """Pack the state before any character; how many places of `packed` are in use."""
    start(st)
    packed[LENGTH_AT] = complete(st, states, notes, words, memo, 0)
    return pack(st, packed, words)


@native
def advance(
    packed: Array, ch: int, st: Array, states: States, notes: Array, words: Array, memo: Array
) -> int:
    """Read one character from a packed state and pack the result in its place.

    How many places of `packed` are in use afterwards; -1 where the character is refused or
    leads to a dead end. The other arguments are those of `complete`.
    """
    unpack(packed, st)
    if not step(st, ch):
        return -1
    length = complete(st, states, notes, words, memo, 0)
    if length < 0:
        return -1
    packed[LENGTH_AT] = length
    return pack(st, packed, words)


@native
def packed_ending(
    packed: Array, st: Array, states: States, notes: Array, words: Array, memo: Array
) -> int:
    """Write the ending of a packed state to `notes`; its length."""
    unpack(packed, st)
    return complete(st, states, notes, words, memo, 1)
