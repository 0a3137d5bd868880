"""The elements and their valences, as RDKit has them, and the numbers that follow from them.

    >>> from rel_batch.constraints.molecules.elements import SYMBOLS
    >>> SYMBOLS[6], VALENCES[16]
    ('C', (2, 4, 6))

Source: RDKit's periodic table (`PeriodicTable::getValenceList`, 2026.09) and its valence rules
(`calcExplicitValence`); a test compares every element and charge with the installed RDKit.

Surprising: a charged atom has the valences of the element it is isoelectronic with (N+ those of
C), except that P, S, As and Se stay hypervalent when they are anions.
"""

from __future__ import annotations

_TABLE = """
* H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr
Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb
Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf
Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og
"""
SYMBOLS = tuple(_TABLE.split())
NUMBER = {symbol: number for number, symbol in enumerate(SYMBOLS)}
ANY = -1  # in place of a valence: as many bonds as one likes

_SEVERAL: dict[str, tuple[int, ...]] = {
    "H": (1,), "He": (0,), "Be": (2,), "B": (3,), "C": (4,), "N": (3,), "O": (2,), "F": (1,),
    "Ne": (0,), "Al": (3,), "Si": (4,), "P": (3, 5), "S": (2, 4, 6), "Cl": (1,), "Ar": (0,),
    "Li": (1, ANY), "Na": (1, ANY), "K": (1, ANY), "Rb": (1, ANY), "Cs": (1,), "Fr": (1,),
    "Mg": (2, ANY), "Ca": (2, ANY), "Sr": (2, ANY), "Ba": (2, ANY), "Ra": (2, ANY),
    "Ga": (3,), "Ge": (4,), "As": (3, 5), "Se": (2, 4, 6), "Br": (1,), "Kr": (0,),
    "In": (3,), "Sn": (2, 4), "Sb": (3, 5), "Te": (2, 4, 6), "I": (1, 3, 5),
    "Xe": (0, 2, 4, 6), "Pb": (2, 4), "Bi": (3, 5), "Po": (2, 4, 6), "At": (1, 3, 5), "Rn": (0,),
}  # fmt: skip
VALENCES: tuple[tuple[int, ...], ...] = tuple(_SEVERAL.get(s, (ANY,)) for s in SYMBOLS)

# Elements that RDKit counts as left of carbon: their charge works the other way round.
_EARLY = "Li Be B Na Mg Al K Ca Sc Ti Zn Ga Ge Rb Sr Y Zr Nb Cd In Sn Sb"

AROMATIC_SYMBOLS = ("b", "c", "n", "o", "p", "s", "se", "as", "te", "si")

# The same in rows of one length, as C needs them; VALENCE_TABLE is padded with NONE.
NONE = -2
VALENCE_TABLE = tuple((*v, *(NONE,) * (4 - len(v))) for v in VALENCES)
EARLY = tuple(int(s in _EARLY.split()) for s in SYMBOLS)


MAX_CHARGE = 9  # the largest that is written with one digit


def _most_bonds(el: int, charge: int) -> int:
    """Most bonds (hydrogens included) of an atom in brackets; 99 for any, -1 for no such atom."""
    if ANY in VALENCES[el]:
        return 99
    last = VALENCES[el][-1]
    like = el - charge
    if not 0 <= like <= 118:
        return -1
    if (like > 16 and el in (15, 16)) or (like > 34 and el in (33, 34)):
        return last + charge
    if el == 1:
        return (2 if charge == -1 else 0) if charge else 1
    return 99 if ANY in VALENCES[like] else VALENCES[like][-1]


MOST_BONDS = tuple(
    tuple(_most_bonds(el, charge) for charge in range(-MAX_CHARGE, MAX_CHARGE + 1))
    for el in range(len(SYMBOLS))
)


def _by_letters() -> tuple[tuple[int, ...], ...]:
    """element (plus 128 where aromatic) by first letter (A-Z, a-z) and second (a-z, none)."""
    table = [[0] * 27 for _ in range(52)]
    for number, symbol in enumerate(SYMBOLS):
        if ANY in VALENCES[number]:
            continue  # metals: RDKit rewrites their bonds, and no question needs them
        second = ord(symbol[1]) - ord("a") if len(symbol) == 2 else 26
        table[ord(symbol[0]) - ord("A")][second] = number
    for symbol in AROMATIC_SYMBOLS:
        second = ord(symbol[1]) - ord("a") if len(symbol) == 2 else 26
        table[26 + ord(symbol[0]) - ord("a")][second] = 128 + NUMBER[symbol.capitalize()]
    return tuple(tuple(row) for row in table)


ELEMENT_BY_LETTERS = _by_letters()
