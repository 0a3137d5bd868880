"""What a state of the SMILES automaton is made of.

A state is an array of `SIZE` integers: a header, the live atoms (`WIDTH` numbers each), the open
ring bonds, the stack of open branches, and the set of matchings. `automaton.py` says what they
mean together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rel_batch.constraints.molecules.elements import NUMBER

Array = Any  # a list of int, or an array of int64 in C
States = Any  # a list of states
F = TypeVar("F", bound=Callable[..., Any])


def native(function: F) -> F:
    """Mark a function that `translate.py` also writes as C."""
    return function


# -- layout of a state -------------------------------------------------------------------------
LEX, EL, AROM, NUM_H, CHARGE, DIGITS = 0, 1, 2, 3, 4, 5  # inside an atom or a ring number
PREV, BOND, CUR, ALIVE, NUM_STACK, NUM_RINGS, NUM_MATCHINGS = 6, 7, 8, 9, 10, 11, 12
_HEADER = 13

MAX_LIVE = 40  # live atoms (and the forks of the tree that joins them) at one time
MAX_RINGS = 40  # open ring bonds at one time
MAX_MATCHINGS = 256
WIDTH = 14
(
    N_EL, N_AROM, N_CHARGE, N_H, N_AROMATIC_BONDS, N_SINGLES, N_DEGREE, N_OPEN,
    N_PARENT, N_STACKED, N_ON_RING, N_EDGE_OWES, N_BONDED, N_OXO,
) = range(WIDTH)  # fmt: skip
NODES = _HEADER
RINGS = NODES + MAX_LIVE * WIDTH  # number, atom, bond
STACK = RINGS + 3 * MAX_RINGS
MATCHINGS = STACK + MAX_LIVE
SIZE = MATCHINGS + 2 * MAX_MATCHINGS

# values of PREV
START, READY, OPENED = 0, 1, 2
# values of CUR that are no slot
NOBODY, SPENT = -1, -2
# values of BOND; DIRECTED is / or \, a single or aromatic bond
UNSAID, SINGLE, DOUBLE, TRIPLE, QUADRUPLE, DIRECTED = 0, 1, 2, 3, 4, 5
# values of LEX
PLAIN, AFTER_C, AFTER_B, PERCENT, PERCENT_DIGIT = 0, 1, 2, 3, 4
BRACKET, ISOTOPE, LETTER, SYMBOL, CHIRAL, CHIRAL_TWICE = 5, 6, 7, 8, 9, 10
HYDROGEN, HYDROGENS, SIGN, CHARGED = 11, 12, 13, 14
ORGANIC = -1  # in place of a number of hydrogens: as many as the valence leaves

# bond, and element plus 128 where aromatic, by character code
_BONDS = {"-": 1, "=": 2, "#": 3, "$": 4, "/": 5, "\\": 5}
BOND_CHARS = tuple(_BONDS.get(chr(i), 0) for i in range(128))
ORGANIC_SUBSET = tuple(
    NUMBER[chr(i).upper()] + (128 if chr(i).islower() else 0) if chr(i) in "NOPSFIbcnops" else 0
    for i in range(128)
)

# classes of an aromatic atom that will get no more bonds
ILLEGAL, SINGLE_ONLY, NEEDS_DOUBLE = 0, 1, 2


@native
def start(st: Array) -> None:
    """Make `st` the state before any character."""
    for i in range(SIZE):
        st[i] = 0
    st[CUR] = NOBODY
    st[NUM_MATCHINGS] = 1


def copy_state(to: Array, st: Array) -> None:
    """Make `to` equal to `st`."""
    to[:] = st


@native
def node_at(slot: int) -> int:
    """Where the live atom in this slot begins."""
    return NODES + slot * WIDTH


@native
def num_slots(st: Array) -> int:
    """One more than the highest slot in use."""
    count, alive = 0, st[ALIVE]
    while alive != 0:
        alive = alive >> 1
        count += 1
    return count
