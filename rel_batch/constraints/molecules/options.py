"""What the search for an ending tries next, and in which order.

The order is what makes the search short: it follows the matching that leaves the fewest aromatic
atoms without a partner, closes rings from the newest on, and adds an atom only where that helps.
Every choice depends on the state alone, or the law of `completion.py` would not hold.
"""

from __future__ import annotations

from rel_batch.constraints.molecules.states import (
    BOND,
    BRACKET,
    CHARGED,
    CUR,
    DIGITS,
    ISOTOPE,
    LETTER,
    LEX,
    N_AROM,
    N_AROMATIC_BONDS,
    N_BONDED,
    N_DEGREE,
    N_EDGE_OWES,
    N_EL,
    N_H,
    N_ON_RING,
    N_OXO,
    N_PARENT,
    N_SINGLES,
    NUM_RINGS,
    NUM_STACK,
    OPENED,
    ORGANIC,
    PERCENT,
    PERCENT_DIGIT,
    PLAIN,
    PREV,
    RINGS,
    SIGN,
    SPENT,
    STACK,
    START,
    UNSAID,
    Array,
    native,
    node_at,
)
from rel_batch.constraints.molecules.valences import (
    has_room,
    takes,
)

NO_MORE, SKIP = -1, 0


@native
def rings_inside(st: Array) -> int:
    """How many of the open rings were opened in the branch that is open now."""
    top = st[STACK + st[NUM_STACK] - 1] if st[NUM_STACK] > 0 else SPENT
    if top == SPENT or not has_room(st, top):
        return st[NUM_RINGS]
    inside = 0
    for i in range(st[NUM_RINGS]):
        slot = st[RINGS + 3 * i + 1]
        if slot != top:
            while slot >= 0 and slot != top:
                slot = st[node_at(slot) + N_PARENT]
            inside += 1 if slot == top else 0
    return inside


@native
def owes_ring(st: Array, slot: int) -> bool:
    """Whether this atom, or a closed one on the edge above it, is not on a ring so far."""
    n = node_at(slot)
    return (st[n + N_AROM] == 1 and st[n + N_ON_RING] == 0) or st[n + N_EDGE_OWES] == 1


@native
def ancestor_owes_ring(st: Array) -> bool:
    """Whether an atom above the current one is not on a ring so far."""
    owes = st[node_at(st[CUR]) + N_EDGE_OWES] == 1
    slot = st[node_at(st[CUR]) + N_PARENT]
    while slot >= 0:
        owes = owes or owes_ring(st, slot)
        slot = st[node_at(slot) + N_PARENT]
    return owes


@native
def is_open_number(st: Array, number: int) -> bool:
    """Whether a ring of this number is open."""
    found = False
    for i in range(st[NUM_RINGS]):
        found = found or st[RINGS + 3 * i] == number
    return found


@native
def free_number(st: Array) -> int:
    """The lowest ring number, from 1 on, that is not open."""
    number = 1
    while is_open_number(st, number):
        number += 1
    return number


@native
def lexical_option(st: Array, i: int) -> int:
    """The characters to try inside a bracket or a ring number."""
    lex = st[LEX]
    if lex == PERCENT:
        # the tens of the open ring numbers, or else the lowest
        if i < st[NUM_RINGS]:
            number = st[RINGS + 3 * (st[NUM_RINGS] - 1 - i)]
            return 48 + number // 10 if number >= 10 else SKIP
        return 49 if i == st[NUM_RINGS] else NO_MORE
    if lex == PERCENT_DIGIT:
        tens = 10 * st[DIGITS]
        if i < st[NUM_RINGS]:
            number = st[RINGS + 3 * (st[NUM_RINGS] - 1 - i)]
            return 48 + number % 10 if number // 10 == st[DIGITS] else SKIP
        i -= st[NUM_RINGS]
        if i > 9:
            return NO_MORE
        return SKIP if is_open_number(st, tens + i) else 48 + i
    if lex in (BRACKET, ISOTOPE):
        beside_aromatic = st[CUR] >= 0 and st[node_at(st[CUR]) + N_AROM] == 1
        if i < 2:
            return 99 if beside_aromatic == (i == 0) else 67  # c C
        if i == 2:
            return 110  # n
        if i == 3:
            return 79  # O
        if i == 4:
            return 78  # N
        return NO_MORE
    if i == 0:
        return 93  # ]
    if lex in (SIGN, CHARGED):
        return NO_MORE
    if i == 1:
        return 43  # +
    if i == 2:
        return 45  # -
    if i == 3:
        return 72  # H
    if lex == LETTER:
        return 97 + i - 4 if i < 30 else NO_MORE
    return NO_MORE


@native
def number_option(st: Array, i: int) -> int:
    """The first character of the `i`-th newest open ring number."""
    number = st[RINGS + 3 * (st[NUM_RINGS] - 1 - i)]
    return 48 + number if number < 10 else 37


@native
def ring_wants(st: Array, i: int, wants: int) -> int:
    """Whether the atom at the other end of the `i`-th newest open ring needs a partner."""
    return wants >> st[RINGS + 3 * (st[NUM_RINGS] - 1 - i) + 1] & 1


@native
def new_ring(st: Array) -> int:
    """The first character of the lowest free ring number."""
    number = free_number(st)
    return 48 + number if number < 10 else 37


@native
def closing_option(st: Array, i: int, wants: int, wanted: int) -> int:
    """The number of the `i`-th newest open ring, if the atom that opened it is of the wanted kind.

    The kind is 1 for an atom that needs a partner, else 0.
    """
    if ring_wants(st, i, wants) != wanted or is_beside(st, i):
        return SKIP
    n = node_at(st[CUR])
    if st[NUM_RINGS] > 1 and st[NUM_STACK] == 0 and st[n + N_AROM] == 0 and not takes(st, n, 2, 0):
        return SKIP  # the last bond of the last atom is for the next atom
    return number_option(st, i)


@native
def is_beside(st: Array, i: int) -> bool:
    """Whether the `i`-th newest open ring began at the current atom or at one bonded to it."""
    other = st[RINGS + 3 * (st[NUM_RINGS] - 1 - i) + 1]
    return other == st[CUR] or st[node_at(st[CUR]) + N_BONDED] >> other & 1


@native
def is_beside_opener(st: Array) -> bool:
    """Whether some open ring cannot close at the current atom because it began there or beside."""
    beside = False
    for i in range(st[NUM_RINGS]):
        beside = beside or is_beside(st, i)
    return beside


@native
def is_fresh_carbon(st: Array) -> bool:
    """Whether the current atom is a carbon with one single bond: a further one is no better.

    One that says its hydrogens, as [cH], closes one ring at most.
    """
    n = node_at(st[CUR])
    if st[n + N_H] != ORGANIC and st[NUM_RINGS] > 1:
        return False
    return st[n + N_EL] == 6 and st[n + N_SINGLES] + st[n + N_AROMATIC_BONDS] == 1


@native
def some_ring_wants(st: Array, wants: int) -> bool:
    """Whether an open ring began at an atom that needs a partner."""
    found = False
    for i in range(st[NUM_RINGS]):
        found = found or ring_wants(st, i, wants) == 1
    return found


@native
def growth_option(st: Array, wants: int, second: bool) -> int:
    """The atom to add, of two choices, so that the open rings can close; 0 if none helps."""
    if st[NUM_RINGS] == 0:
        return SKIP
    n = node_at(st[CUR])
    paired = some_ring_wants(st, wants)
    carbon = paired == second  # rather than an aromatic one
    if st[n + N_AROM] == 1:
        idle = is_fresh_carbon(st) and not is_beside_opener(st) and second
    else:
        roomy = st[n + N_EL] == 6 and takes(st, n, st[NUM_RINGS], 0)
        idle = roomy and not is_beside_opener(st) and (second or not paired)
    if idle:
        return SKIP
    return 67 if carbon else 99


@native
def partner_option(st: Array, i: int, wants: int) -> int:
    """What to try where the current atom needs a partner for its double bond."""
    rings = st[NUM_RINGS]
    n = node_at(st[CUR])
    if i < rings:
        return closing_option(st, i, wants, 1)
    i -= rings
    if i == 0:
        return new_ring(st) if st[n + N_ON_RING] == 0 and rings == 0 else SKIP
    if i == 1:
        if rings == 0 and st[n + N_ON_RING] == 1:
            return SKIP
        idle = is_fresh_carbon(st) and not is_beside_opener(st) and some_ring_wants(st, wants)
        return SKIP if idle else 99
    if i == 2:
        return 61 if st[n + N_DEGREE] > 1 else SKIP  # a double bond out of the ring
    if i == 3:
        return 67 if st[n + N_EL] != 6 else SKIP  # a third bond, for n and b
    i -= 4
    if i < rings:
        return closing_option(st, i, wants, 0)
    if i == rings:
        return 41 if st[NUM_STACK] > 0 else SKIP
    if i == rings + 1:
        late = rings > 0 and st[n + N_ON_RING] == 0 and rings_inside(st) == 0
        return new_ring(st) if late else SKIP
    return NO_MORE


@native
def option(st: Array, i: int, wants: int) -> int:
    """The `i`-th character to try, 0 to pass it over, -1 where there are no more.

    It depends on the state alone, or the law of this module would not hold.
    """
    if st[LEX] != PLAIN:
        return lexical_option(st, i)
    cur, rings = st[CUR], st[NUM_RINGS]
    if st[PREV] == START:
        return 67 if i == 0 else NO_MORE
    if st[BOND] != UNSAID or st[PREV] == OPENED:
        if i == 0:
            return 67
        if i == 1:
            return 99 if st[node_at(cur) + N_AROM] == 1 else SKIP
        if i == 2:
            return 79
        if i == 3:
            return 78
        if st[PREV] == OPENED:
            return NO_MORE
        i -= 4
        if i < rings:
            return number_option(st, i)
        return new_ring(st) if i == rings and owes_ring(st, cur) else NO_MORE
    if cur < 0:
        return 41 if i == 0 and st[NUM_STACK] > 0 else NO_MORE
    if wants >> cur & 1:
        return partner_option(st, i, wants)
    n = node_at(cur)
    if st[n + N_OXO] == 1 and st[n + N_AROM] == 0 and st[n + N_SINGLES] + max(st[n + N_H], 0) == 4:
        return 67 if i == 0 else NO_MORE  # the fifth bond of N=O
    inside = rings_inside(st)
    # A ring that must close over an atom below this branch is opened here and left open.
    leaves_one = ancestor_owes_ring(st) and inside == rings
    may_pop = st[NUM_STACK] > 0 and inside == (1 if leaves_one else 0)
    if i == 0:
        return 41 if may_pop else SKIP
    i -= 1
    if i == 0:
        return closing_option(st, 0, wants, 0) if rings > 0 else SKIP
    i -= 1
    if i == 0:
        early = leaves_one or (rings == 0 and owes_ring(st, cur))
        return new_ring(st) if inside == 0 and early else SKIP
    if i < 3:
        return growth_option(st, wants, i == 2)
    i -= 3
    if i < rings:
        return closing_option(st, i, wants, 0)
    i -= rings
    if i < rings:
        return closing_option(st, i, wants, 1)
    i -= rings
    if i == 0:
        return 41 if st[NUM_STACK] > 0 and not may_pop else SKIP
    if i == 1:
        late = inside == 0 and rings > 0 and st[n + N_ON_RING] == 0
        owes = owes_ring(st, cur) or ancestor_owes_ring(st)
        return new_ring(st) if late and owes else SKIP
    return NO_MORE
