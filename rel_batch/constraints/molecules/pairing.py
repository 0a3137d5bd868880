"""Which aromatic atoms still need a partner for a double bond: what an ending has to see to."""

from __future__ import annotations

from rel_batch.constraints.molecules.states import (
    ALIVE,
    CUR,
    MATCHINGS,
    N_AROM,
    N_AROMATIC_BONDS,
    N_CHARGE,
    N_DEGREE,
    N_EL,
    N_H,
    N_OPEN,
    N_OXO,
    N_SINGLES,
    N_STACKED,
    NEEDS_DOUBLE,
    NUM_MATCHINGS,
    Array,
    native,
    node_at,
    num_slots,
)
from rel_batch.constraints.molecules.tree import (
    is_live,
    order_slots,
    renumbered,
)
from rel_batch.constraints.molecules.valences import aromatic_class


@native
def count_bits(bits: int) -> int:
    """How many bits are set."""
    count = 0
    while bits != 0:
        bits &= bits - 1
        count += 1
    return count


@native
def likely_class(st: Array, n: int) -> int:
    """The class of the aromatic atom at `n` once it has two aromatic bonds, as most will have."""
    if st[n + N_OXO] == 1:
        return NEEDS_DOUBLE
    aromatic, singles = st[n + N_AROMATIC_BONDS], st[n + N_SINGLES]
    turned = min(max(2 - aromatic, 0), min(st[n + N_OPEN], singles))
    # one more bond is to come where a branch is open, and where a ring has opened just here
    here = n == node_at(max(st[CUR], 0)) and st[n + N_OPEN] > 0
    least = 1 if here or st[n + N_STACKED] == 1 else 0
    added = max(2 - aromatic - turned, least)
    return aromatic_class(
        st[n + N_EL],
        st[n + N_CHARGE],
        st[n + N_H],
        aromatic + turned + added,
        singles - turned,
        st[n + N_DEGREE] + added,
        0,
    )


@native
def wanting(st: Array, order: Array) -> int:
    """The live aromatic atoms that still need a partner, as bits, in the best matching.

    `order` is scratch: `MAX_LIVE` places.
    """
    needy, single, stacked = 0, 0, 0
    for slot in range(num_slots(st)):
        if st[ALIVE] >> slot & 1 and is_live(st, slot) and st[node_at(slot) + N_AROM] == 1:
            if st[node_at(slot) + N_STACKED] == 1:
                stacked |= 1 << slot
            if likely_class(st, node_at(slot)) == NEEDS_DOUBLE:
                needy |= 1 << slot
            else:
                single |= 1 << slot
    best, fewest, slots = 0, 999, -1
    for i in range(st[NUM_MATCHINGS]):
        atoms = st[MATCHINGS + 2 * i]
        # An atom that is matched but must not be has to change first, which is seldom possible.
        count = count_bits(needy & ~atoms) + 9 * count_bits(single & atoms)
        left = needy & ~atoms
        count += count_bits(left & stacked)  # it is easier to find a partner for the others now
        if count == fewest and left != best:
            # what is chosen must not depend on how the slots are numbered
            if slots < 0:
                slots = order_slots(st, order)
            if renumbered(left, order, slots) < renumbered(best, order, slots):
                best = left
        if count < fewest:
            best, fewest = left, count
    return best
