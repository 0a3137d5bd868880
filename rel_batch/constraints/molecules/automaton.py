"""The SMILES automaton: what must be remembered of a prefix, and what each character does to it.

A state is an array of integers. It does not hold the molecule but only what can still matter:
the *live* atoms (the current one, those below an open branch, those with an open ring bond), a
tree that joins them, and what the closed aromatic atoms still owe. Everything else is dropped as
soon as it is settled, so the cost of a character does not grow with the molecule, and prefixes
that can only go on alike become equal.

Rules, each as RDKit has it:

- *Valence.* A bond is taken only if both atoms have room (`elements.py`).
- *Rings.* A ring bond joins two distinct atoms that are not yet bonded; every aromatic atom must
  lie on a ring. The live tree keeps one edge for each chain of closed atoms, with a flag that
  says whether an aromatic atom on it is not on a ring so far; a ring that closes over the edge
  clears the flag, an edge that can no longer be closed over while flagged is a dead end.
- *Aromaticity.* The aromatic atoms that need a double bond must have a perfect matching over
  aromatic ring bonds (a Kekule structure). The state holds the set of matchings of the prefix,
  each as two bit masks: which live atoms are matched, and which live edges (not on a ring so far)
  carry a double bond, which they may only keep if a ring closes over them. An empty set is a
  dead end.

Surprising: these functions are also translated to C (`translate.py`), hence the arrays, the flat
style and the integer flags.
"""

from __future__ import annotations

from rel_batch.constraints.molecules.bonds import (
    add_atom,
    close_branch,
    open_branch,
    ring_number,
    write_bond,
)
from rel_batch.constraints.molecules.elements import (
    ELEMENT_BY_LETTERS,
)
from rel_batch.constraints.molecules.states import (
    AFTER_B,
    AFTER_C,
    AROM,
    BOND,
    BOND_CHARS,
    BRACKET,
    CHARGE,
    CHARGED,
    CHIRAL,
    CHIRAL_TWICE,
    CUR,
    DIGITS,
    EL,
    HYDROGEN,
    HYDROGENS,
    ISOTOPE,
    LETTER,
    LEX,
    NUM_H,
    NUM_RINGS,
    NUM_STACK,
    ORGANIC,
    ORGANIC_SUBSET,
    PERCENT,
    PERCENT_DIGIT,
    PLAIN,
    PREV,
    READY,
    SIGN,
    SPENT,
    SYMBOL,
    UNSAID,
    Array,
    native,
)
from rel_batch.constraints.molecules.tree import (
    close_atom,
)


@native
def commit(st: Array) -> bool:
    """Add the atom whose bracket has just closed."""
    el, arom, charge, h = st[EL], st[AROM], st[CHARGE], st[NUM_H]
    for i in range(LEX, DIGITS + 1):
        st[i] = 0
    return add_atom(st, el, arom, charge, h)


@native
def element_of(first: int, second: int) -> int:
    """The element of one or two letters plus 128 where aromatic; 0 where there is none."""
    if 65 <= first <= 90:
        row = first - 65
    elif 97 <= first <= 122:
        row = first - 71
    else:
        return 0
    if second == 0:
        return ELEMENT_BY_LETTERS[row][26]
    if 97 <= second <= 122:
        return ELEMENT_BY_LETTERS[row][second - 97]
    return 0


@native
def starts_element(first: int) -> bool:
    found = element_of(first, 0) != 0
    for second in range(97, 123):
        found = found or element_of(first, second) != 0
    return found


@native
def read_bracket(st: Array, ch: int) -> bool:
    """A character inside [...]: isotope, element, chirality, hydrogens, charge."""
    lex = st[LEX]
    digit = 48 <= ch <= 57
    if lex in (BRACKET, ISOTOPE):
        if digit:
            # RDKit takes no isotope 0 that is followed by digits
            if lex == ISOTOPE and (st[DIGITS] >= 3 or (st[DIGITS] == 1 and st[EL] == 0)):
                return False
            st[EL] = ch - 48 if lex == BRACKET else st[EL]
            st[DIGITS] += 1
            st[LEX] = ISOTOPE
            return True
        if not starts_element(ch):
            return False
        st[LEX], st[EL], st[DIGITS] = LETTER, ch, 0
        return True
    if lex == LETTER:
        pair = element_of(st[EL], ch)
        if pair != 0:
            st[EL], st[AROM], st[LEX] = pair % 128, pair // 128, SYMBOL
            return True
        one = element_of(st[EL], 0)
        if one == 0:
            return False
        st[EL], st[AROM], st[LEX] = one % 128, one // 128, SYMBOL
        lex = SYMBOL
    if ch == 93:  # ]
        return commit(st)
    if st[EL] == 1 and lex >= SYMBOL and (ch == 64 or lex >= HYDROGEN):
        return False  # hydrogen is [H], [HH], [H+] or [H-]
    if ch == 64:  # @
        if lex == SYMBOL:
            st[LEX] = CHIRAL
            return True
        if lex == CHIRAL:
            st[LEX] = CHIRAL_TWICE
            return True
        return False
    if ch == 72 and SYMBOL <= lex <= CHIRAL_TWICE:  # H
        st[NUM_H], st[LEX] = 1, HYDROGEN
        return True
    if digit and lex == HYDROGEN:
        st[NUM_H], st[LEX] = ch - 48, HYDROGENS
        return True
    if ch in (43, 45):  # + -
        sign = 44 - ch
        if SYMBOL <= lex <= HYDROGENS:
            st[CHARGE], st[LEX] = sign, SIGN
            return True
        if lex == SIGN and st[CHARGE] == sign:
            st[CHARGE], st[LEX] = 2 * sign, CHARGED
            return True
        return False
    if digit and lex == SIGN:
        st[CHARGE], st[LEX] = st[CHARGE] * (ch - 48), CHARGED
        return True
    return False


@native
def flush(st: Array) -> bool:
    """Take a C or B that was waiting for the l of Cl or the r of Br as carbon or boron."""
    lex = st[LEX]
    if lex == PLAIN:
        return True
    st[LEX] = PLAIN
    return add_atom(st, 6 if lex == AFTER_C else 5, 0, 0, ORGANIC)


@native
def step(st: Array, ch: int) -> bool:
    """Read the character with this code. False is final; `st` is then of no further use.

    True does not promise that the string can be completed: see `completion.py`.
    """
    lex = st[LEX]
    if lex >= BRACKET:
        return read_bracket(st, ch)
    if lex == PERCENT:
        if ch < 49 or ch > 57:
            return False
        st[LEX], st[DIGITS] = PERCENT_DIGIT, ch - 48
        return True
    if lex == PERCENT_DIGIT:
        if ch < 48 or ch > 57:
            return False
        number = 10 * st[DIGITS] + ch - 48
        st[LEX], st[DIGITS] = PLAIN, 0
        return ring_number(st, number)
    if (lex == AFTER_C and ch == 108) or (lex == AFTER_B and ch == 114):
        st[LEX] = PLAIN
        return add_atom(st, 17 if ch == 108 else 35, 0, 0, ORGANIC)
    if lex != PLAIN and not flush(st):
        return False
    if 48 <= ch <= 57:
        return ring_number(st, ch - 48)
    if ch == 37:  # %
        if st[CUR] < 0 or st[PREV] != READY:
            return False
        st[LEX] = PERCENT
        return True
    if ch == 40:
        return open_branch(st)
    if ch == 41:
        return close_branch(st)
    if ch < 128 and BOND_CHARS[ch] > 0:
        return write_bond(st, BOND_CHARS[ch])
    if st[CUR] == SPENT:
        return False
    if ch == 91:
        st[LEX], st[EL], st[DIGITS] = BRACKET, 0, 0
        return True
    if ch in (67, 66):  # C B
        st[LEX] = AFTER_C if ch == 67 else AFTER_B
        return True
    if ch < 128 and ORGANIC_SUBSET[ch] > 0:
        return add_atom(st, ORGANIC_SUBSET[ch] % 128, ORGANIC_SUBSET[ch] // 128, 0, ORGANIC)
    return False


@native
def is_molecule(st: Array) -> bool:
    """Whether the string read so far is a molecule; `st` is of no further use afterwards."""
    if st[LEX] > AFTER_B or not flush(st):
        return False
    if st[PREV] != READY or st[BOND] != UNSAID or st[NUM_STACK] > 0 or st[NUM_RINGS] > 0:
        return False
    cur = st[CUR]
    if cur >= 0:
        st[CUR] = SPENT
        if not close_atom(st, cur):
            return False
    return True
