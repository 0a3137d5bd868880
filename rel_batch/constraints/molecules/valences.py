"""How many bonds an atom may have, and whether an aromatic one needs a double bond: RDKit's rules.

Source: RDKit's `calcExplicitValence`, `calcImplicitValence`, `markDbondCands` and (for N with five
bonds, which it rewrites to N+ and O-) `cleanUp`. Tests compare the results with RDKit itself.
"""

from __future__ import annotations

from rel_batch.constraints.molecules.elements import EARLY, MAX_CHARGE, MOST_BONDS, VALENCE_TABLE
from rel_batch.constraints.molecules.states import (
    ILLEGAL,
    N_AROM,
    N_AROMATIC_BONDS,
    N_CHARGE,
    N_DEGREE,
    N_EL,
    N_H,
    N_OXO,
    N_SINGLES,
    NEEDS_DOUBLE,
    ORGANIC,
    SINGLE_ONLY,
    Array,
    native,
    node_at,
)


@native
def max_valence(el: int, charge: int) -> int:
    """Most bonds (hydrogens included) of an atom in brackets; 99 for any, -1 for no such atom."""
    return MOST_BONDS[el][charge + MAX_CHARGE]


@native
def aromatic_class(
    el: int, charge: int, h: int, aromatic_bonds: int, singles: int, degree: int, closed: int
) -> int:
    """What RDKit asks of an aromatic atom with exactly these bonds.

    `singles` is the sum of the orders of its bonds that are not aromatic; `closed` is 1 where no
    more bonds will come, which makes the check strict. Mirrors
    `calcExplicitValence`, `calcImplicitValence` and `markDbondCands`.
    """
    explicit_h = max(h, 0)
    if degree + explicit_h > 3:
        return ILLEGAL  # RDKit takes some with four, by rules that look at whole ring systems
    like = el - charge
    if like < 0 or like > 118:
        return ILLEGAL
    twice = 3 * aromatic_bonds + 2 * singles + 2 * explicit_h
    usual = VALENCE_TABLE[like][0]
    if usual == -1:
        return ILLEGAL
    if twice > 2 * usual:
        nearest = usual
        for i in range(4):
            v = VALENCE_TABLE[like][i]
            if v < 0 or 2 * v > twice:
                break
            nearest = v
        if twice - 2 * nearest <= 3:
            twice = 2 * nearest
    valence = (twice + 1) // 2
    if valence > max_valence(el, charge):
        return ILLEGAL
    implicit_h = 0
    if h == ORGANIC:
        if valence <= usual:
            implicit_h = usual - valence
        else:
            known = False
            for i in range(4):
                known = known or VALENCE_TABLE[like][i] == valence
            if not known:
                return ILLEGAL
    shift = -charge if EARLY[el] == 1 or (el == 6 and charge > 0) else charge
    target = VALENCE_TABLE[el][0] + shift
    orders = aromatic_bonds + singles + explicit_h + implicit_h
    i = 1
    while orders > target and i < 4 and VALENCE_TABLE[el][i] > 0:
        target = VALENCE_TABLE[el][i] + shift
        i += 1
    kind = SINGLE_ONLY
    if degree + implicit_h + explicit_h < target and (
        target == orders + 1 or (h != ORGANIC and target == orders + 2)
    ):
        kind = NEEDS_DOUBLE
    # RDKit compares the valence before and after it writes the bonds out
    if closed == 1 and orders + kind - SINGLE_ONLY != valence + implicit_h:
        return ILLEGAL
    return kind


@native
def is_oxide_nitrogen(st: Array, n: int) -> bool:
    """Whether the atom may be the five-valent N of C-N(=O)=O, which RDKit rewrites."""
    return st[n + N_EL] == 7 and st[n + N_CHARGE] == 0


@native
def takes(st: Array, n: int, order: int, aromatic: int) -> bool:
    """Whether the atom at `n` has room for one more bond (`aromatic` or of this `order`)."""
    h = max(st[n + N_H], 0)
    if st[n + N_AROM] == 1:
        a, s, d = st[n + N_AROMATIC_BONDS], st[n + N_SINGLES], st[n + N_DEGREE]
        if st[n + N_OXO] == 1:  # n(=O) is rewritten to [n+][O-]
            return aromatic == 1 and a < 2
        if aromatic == 1:
            return (
                aromatic_class(st[n + N_EL], st[n + N_CHARGE], st[n + N_H], a + 1, s, d + 1, 0) != 0
            )
        return (
            aromatic_class(st[n + N_EL], st[n + N_CHARGE], st[n + N_H], a, s + order, d + 1, 0) != 0
        )
    total = st[n + N_SINGLES] + h + order
    if total <= max_valence(st[n + N_EL], st[n + N_CHARGE]):
        return True
    return is_oxide_nitrogen(st, n) and total <= 5 and st[n + N_OXO] == 1


@native
def becomes_oxide(st: Array, n: int, order: int, el: int, charge: int) -> bool:
    """Whether a bond of this order to that element makes the nitrogen at `n` five-valent."""
    if not is_oxide_nitrogen(st, n) or charge != 0:
        return False
    if order != 2 or el != 8:
        return False
    if st[n + N_AROM] == 1:
        return st[n + N_H] <= 0 and st[n + N_SINGLES] == 0
    return st[n + N_SINGLES] + max(st[n + N_H], 0) + order <= 5


@native
def has_room(st: Array, slot: int) -> bool:
    """Whether the atom can take any further bond."""
    n = node_at(slot)
    if takes(st, n, 1, 0):
        return True
    if st[n + N_AROM] == 1 and takes(st, n, 1, 1):
        return True
    return becomes_oxide(st, n, 2, 8, 0)
