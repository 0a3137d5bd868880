"""What an atom, a bond, a ring number and a branch do to a state. See `automaton.py`."""

from __future__ import annotations

from rel_batch.constraints.molecules.states import (
    ALIVE,
    BOND,
    CUR,
    DIRECTED,
    DOUBLE,
    ILLEGAL,
    MAX_LIVE,
    MAX_RINGS,
    N_AROM,
    N_AROMATIC_BONDS,
    N_BONDED,
    N_CHARGE,
    N_DEGREE,
    N_EL,
    N_H,
    N_OPEN,
    N_OXO,
    N_PARENT,
    N_SINGLES,
    N_STACKED,
    NUM_RINGS,
    NUM_STACK,
    OPENED,
    PREV,
    QUADRUPLE,
    READY,
    RINGS,
    SPENT,
    STACK,
    START,
    UNSAID,
    WIDTH,
    Array,
    native,
    node_at,
)
from rel_batch.constraints.molecules.tree import (
    can_attach,
    mark_ring,
    offer_double,
    settle,
)
from rel_batch.constraints.molecules.valences import (
    aromatic_class,
    becomes_oxide,
    has_room,
    max_valence,
    takes,
)


@native
def order_of(bond: int) -> int:
    """The order of a written bond (1 where it may turn out aromatic)."""
    return bond if DOUBLE <= bond <= QUADRUPLE else 1


@native
def may_be_aromatic(bond: int) -> bool:
    return bond in (UNSAID, DIRECTED)


@native
def add_bond(st: Array, slot: int, order: int, aromatic: int) -> None:
    n = node_at(slot)
    if aromatic == 1:
        st[n + N_AROMATIC_BONDS] += 1
    else:
        st[n + N_SINGLES] += order


@native
def add_atom(st: Array, el: int, arom: int, charge: int, h: int) -> bool:
    """Bond a new atom to the current one."""
    slot = 0
    while slot < MAX_LIVE and st[ALIVE] >> slot & 1:
        slot += 1
    if slot == MAX_LIVE:
        return False
    n = node_at(slot)
    for i in range(WIDTH):
        st[n + i] = 0
    st[n + N_EL], st[n + N_AROM], st[n + N_CHARGE], st[n + N_H] = el, arom, charge, h
    st[n + N_PARENT] = -1
    if arom == 1:
        if aromatic_class(el, charge, h, 0, 0, 0, 0) == ILLEGAL:
            return False
    elif max(h, 0) > max_valence(el, charge):
        return False
    old, bond, aromatic = st[CUR], st[BOND], 0
    if old == SPENT:
        return False
    if old >= 0:
        o = node_at(old)
        order = order_of(bond)
        aromatic = 1 if may_be_aromatic(bond) and arom == 1 and st[o + N_AROM] == 1 else 0
        oxide = becomes_oxide(st, n, order, st[o + N_EL], st[o + N_CHARGE])
        if not oxide and not takes(st, n, order, aromatic):
            return False
        if becomes_oxide(st, o, order, el, charge):
            st[o + N_OXO] = 1
        elif not takes(st, o, order, aromatic):
            return False
        if oxide:
            st[n + N_OXO] = 1
        add_bond(st, old, order, aromatic)
        add_bond(st, slot, order, aromatic)
        st[o + N_DEGREE] += 1
        st[n + N_DEGREE] = 1
        st[n + N_PARENT] = old
        st[n + N_BONDED] = 1 << old
        st[o + N_BONDED] |= 1 << slot
    st[ALIVE] |= 1 << slot
    st[CUR], st[BOND], st[PREV] = slot, UNSAID, READY
    if old >= 0:
        if aromatic == 1 and not offer_double(st, old, slot, 1 << slot):
            return False
        if not settle(st, old):
            return False
    return settle(st, slot) and can_attach(st)


@native
def ring_number(st: Array, number: int) -> bool:
    """Open or close the ring bond of this number at the current atom."""
    cur, bond = st[CUR], st[BOND]
    if cur < 0 or st[PREV] != READY:
        return False
    n = node_at(cur)
    found = -1
    for i in range(st[NUM_RINGS]):
        if st[RINGS + 3 * i] == number:
            found = i
    if found < 0:
        order = order_of(bond)
        if st[NUM_RINGS] >= MAX_RINGS:
            return False
        may = may_be_aromatic(bond) and st[n + N_AROM] == 1 and takes(st, n, 1, 1)
        if not may and not takes(st, n, order, 0):
            return False
        i = RINGS + 3 * st[NUM_RINGS]
        st[i], st[i + 1], st[i + 2] = number, cur, bond
        st[NUM_RINGS] += 1
        st[n + N_SINGLES] += order
        st[n + N_DEGREE] += 1
        st[n + N_OPEN] += 1
        st[BOND] = UNSAID
        return can_attach(st)
    other = st[RINGS + 3 * found + 1]
    first = st[RINGS + 3 * found + 2]
    if other == cur or st[n + N_BONDED] >> other & 1:
        return False
    st[NUM_RINGS] -= 1
    last = RINGS + 3 * st[NUM_RINGS]
    for i in range(RINGS + 3 * found, last):
        st[i] = st[i + 3]
    m = node_at(other)
    st[m + N_SINGLES] -= order_of(first)
    st[m + N_DEGREE] -= 1
    st[m + N_OPEN] -= 1
    if may_be_aromatic(first):  # where both ends name a bond, the first one counts
        first = bond if bond != UNSAID else first
    order = order_of(first)
    aromatic = 0
    if may_be_aromatic(first) and st[n + N_AROM] == 1 and st[m + N_AROM] == 1:
        aromatic = 1
    if not takes(st, n, order, aromatic) or not takes(st, m, order, aromatic):
        return False
    add_bond(st, cur, order, aromatic)
    add_bond(st, other, order, aromatic)
    st[n + N_DEGREE] += 1
    st[m + N_DEGREE] += 1
    st[n + N_BONDED] |= 1 << other
    st[m + N_BONDED] |= 1 << cur
    st[BOND] = UNSAID
    if not mark_ring(st, cur, other):
        return False
    if aromatic == 1 and not offer_double(st, cur, other, 0):
        return False
    return settle(st, other) and settle(st, cur) and can_attach(st)


@native
def write_bond(st: Array, bond: int) -> bool:
    cur = st[CUR]
    if cur < 0 or st[BOND] != UNSAID or st[PREV] == START:
        return False
    n = node_at(cur)
    order = order_of(bond)
    room = takes(st, n, order, 0)
    if not room and may_be_aromatic(bond):
        room = st[n + N_AROM] == 1 and takes(st, n, 1, 1)
    if not room:
        room = becomes_oxide(st, n, order, 8, 0)
    st[BOND] = bond
    return room


@native
def open_branch(st: Array) -> bool:
    cur = st[CUR]
    if cur < 0 or st[PREV] != READY or st[BOND] != UNSAID or st[NUM_STACK] >= MAX_LIVE:
        return False
    if not has_room(st, cur):
        return False
    st[STACK + st[NUM_STACK]] = cur
    st[NUM_STACK] += 1
    st[node_at(cur) + N_STACKED] = 1
    st[PREV] = OPENED
    return True


@native
def close_branch(st: Array) -> bool:
    if st[NUM_STACK] == 0 or st[PREV] != READY or st[BOND] != UNSAID:
        return False
    old = st[CUR]
    st[NUM_STACK] -= 1
    top = st[STACK + st[NUM_STACK]]
    st[CUR] = top
    if top >= 0:
        st[node_at(top) + N_STACKED] = 0
    if old >= 0 and not settle(st, old):
        return False
    return can_attach(st)
