"""What the live atoms owe: rings to close over them, double bonds for the aromatic ones.

See `automaton.py` for the rules.
"""

from __future__ import annotations

from rel_batch.constraints.molecules.states import (
    ALIVE,
    BOND,
    CUR,
    ILLEGAL,
    MATCHINGS,
    MAX_MATCHINGS,
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
    NEEDS_DOUBLE,
    NOBODY,
    NUM_MATCHINGS,
    NUM_RINGS,
    NUM_STACK,
    RINGS,
    SINGLE_ONLY,
    SPENT,
    STACK,
    UNSAID,
    Array,
    native,
    node_at,
    num_slots,
)
from rel_batch.constraints.molecules.valences import (
    aromatic_class,
    has_room,
    is_oxide_nitrogen,
)


@native
def add_matching(st: Array, atoms: int, edges: int) -> bool:
    """Put a matching into the set; False where there are too many."""
    count = st[NUM_MATCHINGS]
    for i in range(count):
        if st[MATCHINGS + 2 * i] == atoms and st[MATCHINGS + 2 * i + 1] == edges:
            return True
    if count >= MAX_MATCHINGS:
        return False
    st[MATCHINGS + 2 * count] = atoms
    st[MATCHINGS + 2 * count + 1] = edges
    st[NUM_MATCHINGS] = count + 1
    return True


@native
def offer_double(st: Array, x: int, y: int, edge: int) -> bool:
    """A new aromatic bond between live atoms may be the double bond of both."""
    both = (1 << x) | (1 << y)
    for i in range(st[NUM_MATCHINGS]):
        atoms = st[MATCHINGS + 2 * i]
        if atoms & both == 0 and not add_matching(
            st, atoms | both, st[MATCHINGS + 2 * i + 1] | edge
        ):
            return False
    return True


@native
def keep_matchings(st: Array, atom: int, edge: int, wanted: int) -> bool:
    """Keep the matchings in which the bits of `atom` or `edge` are set (or not), then forget them.

    `wanted` is 1 for set, 0 for not set, -1 for either. False where none is left.
    """
    count = st[NUM_MATCHINGS]
    st[NUM_MATCHINGS] = 0
    for i in range(count):
        atoms, edges = st[MATCHINGS + 2 * i], st[MATCHINGS + 2 * i + 1]
        is_set = 1 if (atoms & atom) | (edges & edge) else 0
        if wanted == -1 or is_set == wanted:
            add_matching(st, atoms & ~atom, edges & ~edge)
    return st[NUM_MATCHINGS] > 0


# -- the live tree -----------------------------------------------------------------------------


@native
def is_live(st: Array, slot: int) -> bool:
    n = node_at(slot)
    return st[CUR] == slot or st[n + N_STACKED] == 1 or st[n + N_OPEN] > 0


@native
def drop(st: Array, slot: int) -> None:
    st[ALIVE] &= ~(1 << slot)
    for other in range(num_slots(st)):
        if st[ALIVE] >> other & 1:
            st[node_at(other) + N_BONDED] &= ~(1 << slot)


@native
def prune(st: Array, slot: int) -> bool:
    """Take closed atoms out of the tree, from `slot` on upwards, where they no longer fork it."""
    while slot >= 0:
        n = node_at(slot)
        owes = 1 if st[n + N_AROM] == 1 and st[n + N_ON_RING] == 0 else 0
        num_children, child = 0, -1
        for other in range(num_slots(st)):
            if st[ALIVE] >> other & 1 and st[node_at(other) + N_PARENT] == slot:
                num_children += 1
                child = other
        parent = st[n + N_PARENT]
        if num_children == 0:
            # Nothing can close a ring over this atom or its edge any more.
            if owes == 1 or st[n + N_EDGE_OWES] == 1:
                return False
            if parent >= 0 and not keep_matchings(st, 0, 1 << slot, 0):
                return False
            drop(st, slot)
            if parent < 0 or is_live(st, parent):
                return True
            slot = parent
        elif num_children == 1:
            c = node_at(child)
            if parent >= 0:
                st[c + N_PARENT] = parent
                if owes == 1 or st[n + N_EDGE_OWES] == 1:
                    st[c + N_EDGE_OWES] = 1
                count = st[NUM_MATCHINGS]
                st[NUM_MATCHINGS] = 0
                for i in range(count):
                    edges = st[MATCHINGS + 2 * i + 1]
                    if edges >> slot & 1:
                        edges = (edges & ~(1 << slot)) | (1 << child)
                    add_matching(st, st[MATCHINGS + 2 * i], edges)
            else:
                if owes == 1 or st[c + N_EDGE_OWES] == 1:
                    return False
                st[c + N_PARENT] = -1
                if not keep_matchings(st, 0, 1 << child, 0):
                    return False
            drop(st, slot)
            # The child may be a fork whose edge to the root was all that kept it.
            if parent < 0 and not is_live(st, child):
                slot = child
            else:
                return True
        else:
            return True
    return True


@native
def class_at(st: Array, n: int, closed: int) -> int:
    """The class of the aromatic atom at `n` with the bonds that it has now."""
    if st[n + N_OXO] == 1:  # n(=O) is rewritten to [n+][O-]
        return NEEDS_DOUBLE if st[n + N_AROMATIC_BONDS] == 2 else ILLEGAL
    return aromatic_class(
        st[n + N_EL],
        st[n + N_CHARGE],
        st[n + N_H],
        st[n + N_AROMATIC_BONDS],
        st[n + N_SINGLES],
        st[n + N_DEGREE],
        closed,
    )


@native
def close_atom(st: Array, slot: int) -> bool:
    """The atom gets no more bonds: check it and take it out of the tree if nothing forks at it."""
    n = node_at(slot)
    h = max(st[n + N_H], 0)
    if st[n + N_AROM] == 1:
        kind = class_at(st, n, 1)
        if kind == ILLEGAL:
            return False
        if not keep_matchings(st, 1 << slot, 0, 1 if kind == NEEDS_DOUBLE else 0):
            return False
    elif is_oxide_nitrogen(st, n) and st[n + N_SINGLES] + h == 4:
        return False
    return prune(st, slot)


@native
def foresee(st: Array, slot: int) -> bool:
    """Drop the matchings that use an atom which stays single however its open rings close."""
    n = node_at(slot)
    if st[n + N_OXO] == 1 or class_at(st, n, 0) != SINGLE_ONLY:
        return True
    opened = min(st[n + N_OPEN], st[n + N_SINGLES])
    closed = aromatic_class(
        st[n + N_EL],
        st[n + N_CHARGE],
        st[n + N_H],
        st[n + N_AROMATIC_BONDS] + opened,
        st[n + N_SINGLES] - opened,
        st[n + N_DEGREE],
        0,
    )
    if closed == NEEDS_DOUBLE:
        return True
    count = st[NUM_MATCHINGS]
    st[NUM_MATCHINGS] = 0
    for i in range(count):
        if not st[MATCHINGS + 2 * i] >> slot & 1:
            add_matching(st, st[MATCHINGS + 2 * i], st[MATCHINGS + 2 * i + 1])
    return st[NUM_MATCHINGS] > 0


@native
def settle(st: Array, slot: int) -> bool:
    """Close the atom if it is not live, or live in name only because it has no room left."""
    n = node_at(slot)
    if st[n + N_OPEN] > 0:
        if st[n + N_AROM] == 1 and st[CUR] != slot and st[n + N_STACKED] == 0:
            return foresee(st, slot)
        return True
    if is_live(st, slot):
        if st[CUR] == slot and st[BOND] != UNSAID:
            return True
        if has_room(st, slot):
            return True
        if st[CUR] == slot:
            st[CUR] = SPENT
        for i in range(st[NUM_STACK]):
            if st[STACK + i] == slot:
                st[STACK + i] = SPENT
        st[n + N_STACKED] = 0
    return close_atom(st, slot)


@native
def can_attach(st: Array) -> bool:
    """Whether some atom can still be added, which every open ring bond needs."""
    if st[NUM_RINGS] == 0 or st[BOND] != UNSAID:
        return True
    if st[CUR] >= 0 and has_room(st, st[CUR]):
        return True
    for i in range(st[NUM_STACK]):
        slot = st[STACK + i]
        if slot >= 0 and has_room(st, slot):
            return True
    return False


@native
def mark_ring(st: Array, x: int, y: int) -> bool:
    """A ring bond closes: everything on the tree path between its atoms is on a ring now."""
    above = 0
    slot = y
    while slot >= 0:
        above |= 1 << slot
        slot = st[node_at(slot) + N_PARENT]
    top = x
    edges = 0
    while not above >> top & 1:
        edges |= 1 << top
        st[node_at(top) + N_ON_RING] = 1
        st[node_at(top) + N_EDGE_OWES] = 0
        top = st[node_at(top) + N_PARENT]
    slot = y
    while slot != top:
        edges |= 1 << slot
        st[node_at(slot) + N_ON_RING] = 1
        st[node_at(slot) + N_EDGE_OWES] = 0
        slot = st[node_at(slot) + N_PARENT]
    st[node_at(top) + N_ON_RING] = 1
    return keep_matchings(st, 0, edges, -1)


@native
def renumbered(mask: int, order: Array, count: int) -> int:
    """The bits of `mask` with each slot replaced by its place in `order`."""
    result = 0
    for place in range(count):
        if mask >> order[place] & 1:
            result |= 1 << place
    return result


@native
def order_slots(st: Array, order: Array) -> int:
    """Number the live slots in a way that does not depend on the slots; how many there are."""
    count, seen = 0, 0
    for i in range(st[NUM_STACK] + 1 + st[NUM_RINGS] + num_slots(st)):
        if i < st[NUM_STACK]:
            slot = st[STACK + i]
        elif i == st[NUM_STACK]:
            slot = st[CUR]
        elif i <= st[NUM_STACK] + st[NUM_RINGS]:
            slot = st[RINGS + 3 * (i - st[NUM_STACK] - 1) + 1]
        else:
            slot = i - st[NUM_STACK] - st[NUM_RINGS] - 1
            if not st[ALIVE] >> slot & 1:
                slot = NOBODY
        if slot >= 0 and not seen >> slot & 1:
            seen |= 1 << slot
            order[count] = slot
            count += 1
    return count
