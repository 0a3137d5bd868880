"""The ways to write a molecule: a SMILES read as a walk over the molecule's graph.

A *trace* is one walk so far: the atoms visited, the current one, the open branches, and the open
ring bonds, each with the atom that it will close at. A text may be read as several traces. Every
trace that `each_way` comes to can be finished, so a text begins a SMILES of the molecule exactly
where it has a trace.

Which SMILES: the atoms as the graph has them; bonds written where they must be; ring numbers 1 to
4, and others where these are taken, before the branches of their atom (as OpenSMILES has it); no
stereo marks.

Why a trace can be finished: once the ring numbers of an atom are done, each of its bonds is on the
walk, reserved for a ring, or committed to a branch of that atom; no two open atoms are committed
to one neighbour; and every atom not yet visited can be reached from an open one.

Surprising: these functions are also translated to C (`translate.py`), hence the arrays and the flat
style. `readings.py` has the arrays, and what is done with many traces at once.
"""

from __future__ import annotations

from rel_batch.constraints.molecules.states import Array, native

# -- a graph: rows of one length in one array for all graphs (`readings.render_graphs`) ------------
MAX_TRACE_ATOMS, MAX_TRACE_BONDS, MAX_BESIDE, MAX_TOKEN = 12, 30, 8, 6
G_ATOMS, G_BONDS, G_MOLECULE, G_TOKENS = 0, 1, 2, 3
G_TOKEN_WIDTH = 2 + MAX_TOKEN  # its number, its length, its characters
G_BESIDE = G_TOKENS + MAX_TRACE_ATOMS * G_TOKEN_WIDTH
G_BESIDE_WIDTH = 1 + MAX_BESIDE  # how many bonds an atom has, and their numbers
G_ENDS = G_BESIDE + MAX_TRACE_ATOMS * G_BESIDE_WIDTH
G_BOND_WIDTH = 4  # its atoms, its order, and whether it may be left unwritten
G_SIZE = G_ENDS + MAX_TRACE_BONDS * G_BOND_WIDTH

# -- a trace: T_LEFT characters of its last atom are still to be read; T_SIGN is a bond's order ---
T_GRAPH, T_LEFT, T_VISITED, T_USED, T_CURRENT, T_PHASE, T_SIGN = 0, 1, 2, 3, 4, 5, 6
T_NUM_STACK, T_NUM_RINGS, T_STACK = 7, 8, 9
T_RINGS = T_STACK + MAX_TRACE_ATOMS
T_RING_WIDTH = 4  # number (from 0: the characters 1 to 9, then 0), atom, bond, whether its sign is
MAX_NUMBERS = 10  # written
T_SIZE = T_RINGS + MAX_NUMBERS * T_RING_WIDTH
FREE_NUMBERS = 4
# Phases of the current atom: ring numbers may follow; branches and atoms only; a branch opened.
T_NUMBERS, T_BRANCHED, T_OPENED = 0, 1, 2


@native
def copy_trace(to: Array, tr: Array) -> None:
    for i in range(T_RINGS + T_RING_WIDTH * tr[T_NUM_RINGS]):
        to[i] = tr[i]


# -- the graph -------------------------------------------------------------------------------------


@native
def bond_at(tr: Array, bond: int) -> int:
    """Where a bond of the trace's graph begins."""
    return tr[T_GRAPH] * G_SIZE + G_ENDS + bond * G_BOND_WIDTH


@native
def across(graphs: Array, tr: Array, bond: int, atom: int) -> int:
    """The atom at the other end of the bond."""
    at = bond_at(tr, bond)
    return graphs[at + 1] if graphs[at] == atom else graphs[at]


@native
def fits(graphs: Array, tr: Array, bond: int, written: int) -> bool:
    """Whether the bond may be written with this sign, or 0 for none."""
    at = bond_at(tr, bond)
    return graphs[at + 3] == 1 if written == 0 else graphs[at + 2] == written


@native
def own_sign(graphs: Array, tr: Array, bond: int) -> int:
    """The sign that has to be written for the bond; 0 for none."""
    at = bond_at(tr, bond)
    return 0 if graphs[at + 3] == 1 else graphs[at + 2]


@native
def beside_at(tr: Array, atom: int) -> int:
    """Where the bonds of an atom begin."""
    return tr[T_GRAPH] * G_SIZE + G_BESIDE + atom * G_BESIDE_WIDTH


@native
def bond_ahead(graphs: Array, tr: Array, atom: int, i: int) -> int:
    """The `i`-th bond of an atom if it is not used, else -1."""
    bond = graphs[beside_at(tr, atom) + 1 + i]
    return -1 if tr[T_USED] >> bond & 1 else bond


@native
def num_ahead(graphs: Array, tr: Array, atom: int) -> int:
    """How many bonds of an atom are not used."""
    count = 0
    for i in range(graphs[beside_at(tr, atom)]):
        if bond_ahead(graphs, tr, atom, i) >= 0:
            count += 1
    return count


@native
def token_at(tr: Array, atom: int) -> int:
    """Where the text of an atom begins: its number, its length, its characters."""
    return tr[T_GRAPH] * G_SIZE + G_TOKENS + atom * G_TOKEN_WIDTH


# -- sets of atoms ---------------------------------------------------------------------------------


@native
def committed_atoms(graphs: Array, tr: Array) -> int:
    """The atoms that are the next ones of an open branch."""
    atoms = 0
    for k in range(tr[T_NUM_STACK]):
        atom = tr[T_STACK + k]
        for i in range(graphs[beside_at(tr, atom)]):
            bond = bond_ahead(graphs, tr, atom, i)
            if bond >= 0:
                atoms |= 1 << across(graphs, tr, bond, atom)
    return atoms


@native
def flood(graphs: Array, tr: Array, atoms: int, barred: int) -> int:
    """What is reached from `atoms` over unused bonds without entering a barred atom."""
    reached, pending, atom = atoms, atoms, 0
    while pending != 0:
        if not pending >> atom & 1:
            atom = 0
            while not pending >> atom & 1:
                atom += 1
        pending &= ~(1 << atom)
        for i in range(graphs[beside_at(tr, atom)]):
            bond = bond_ahead(graphs, tr, atom, i)
            if bond >= 0:
                other = 1 << across(graphs, tr, bond, atom)
                if other & (reached | barred) == 0:
                    reached |= other
                    pending |= other
    return reached


@native
def reaches_all(graphs: Array, tr: Array) -> bool:
    """Whether every atom not yet visited can be reached from an open one."""
    begun = 1 << tr[T_CURRENT]
    for k in range(tr[T_NUM_STACK]):
        begun |= 1 << tr[T_STACK + k]
    closed = tr[T_VISITED] & ~begun
    every = (1 << graphs[tr[T_GRAPH] * G_SIZE + G_ATOMS]) - 1
    return flood(graphs, tr, begun, closed) | closed == every


@native
def may_leave(graphs: Array, tr: Array) -> bool:
    """Whether the ring numbers of the current atom are done."""
    current = tr[T_CURRENT]
    if tr[T_PHASE] != T_NUMBERS or current < 0:
        return True
    for k in range(tr[T_NUM_RINGS]):
        if tr[T_RINGS + k * T_RING_WIDTH + 1] == current:
            return False
    committed = committed_atoms(graphs, tr)
    for i in range(graphs[beside_at(tr, current)]):
        bond = bond_ahead(graphs, tr, current, i)
        if bond >= 0 and committed >> across(graphs, tr, bond, current) & 1:
            return False
    return True


@native
def is_whole_trace(graphs: Array, tr: Array) -> bool:
    """Whether the walk is over: what was read is a SMILES of the molecule."""
    g = tr[T_GRAPH] * G_SIZE
    every = tr[T_VISITED] == (1 << graphs[g + G_ATOMS]) - 1
    every = every and tr[T_USED] == (1 << graphs[g + G_BONDS]) - 1
    return every and tr[T_NUM_STACK] == 0 and tr[T_NUM_RINGS] == 0


# -- what a piece of text does to a trace ----------------------------------------------------------


@native
def close_ring(graphs: Array, tr: Array, k: int, written: int, to: Array) -> bool:
    """Close the `k`-th open ring at the current atom, with this sign; False where it cannot be."""
    at = T_RINGS + k * T_RING_WIDTH
    stated = tr[at + 3] == 1 and written == 0
    if tr[at + 1] != tr[T_CURRENT] or not (stated or fits(graphs, tr, tr[at + 2], written)):
        return False
    copy_trace(to, tr)
    to[T_SIGN] = 0
    to[T_NUM_RINGS] -= 1
    for i in range(at, T_RINGS + to[T_NUM_RINGS] * T_RING_WIDTH):
        to[i] = tr[i + T_RING_WIDTH]
    return True


@native
def begin_ring(graphs: Array, tr: Array, number: int, bond: int, written: int, to: Array) -> None:
    """Open a ring bond; the open ones are in the order of their numbers."""
    copy_trace(to, tr)
    to[T_USED] |= 1 << bond
    to[T_SIGN] = 0
    place = tr[T_NUM_RINGS]
    while place > 0 and to[T_RINGS + (place - 1) * T_RING_WIDTH] > number:
        for i in range(T_RING_WIDTH):
            at = T_RINGS + place * T_RING_WIDTH + i
            to[at] = to[at - T_RING_WIDTH]
        place -= 1
    at = T_RINGS + place * T_RING_WIDTH
    to[at], to[at + 1] = number, across(graphs, tr, bond, tr[T_CURRENT])
    to[at + 2], to[at + 3] = bond, 1 if written != 0 else 0
    to[T_NUM_RINGS] += 1


@native
def open_ring(graphs: Array, tr: Array, number: int, bond: int, written: int, to: Array) -> bool:
    """Open a ring bond with this sign; False where what is left could not be written then."""
    if number < 0 or (written != 0 and not fits(graphs, tr, bond, written)):
        return False
    begin_ring(graphs, tr, number, bond, written, to)
    return reaches_all(graphs, to)


@native
def is_taken(tr: Array, number: int) -> bool:
    """Whether a ring of this number is open."""
    taken = False
    for k in range(tr[T_NUM_RINGS]):
        taken = taken or tr[T_RINGS + k * T_RING_WIDTH] == number
    return taken


@native
def first_number(tr: Array) -> int:
    """The lowest ring number that is free; -1 for none."""
    number = 0
    while number < MAX_NUMBERS and is_taken(tr, number):
        number += 1
    return number if number < MAX_NUMBERS else -1


@native
def push_branch(graphs: Array, tr: Array, to: Array) -> bool:
    current = tr[T_CURRENT]
    if current < 0 or tr[T_SIGN] != 0 or tr[T_PHASE] == T_OPENED or not may_leave(graphs, tr):
        return False
    if num_ahead(graphs, tr, current) == 0:
        return False
    copy_trace(to, tr)
    to[T_PHASE] = T_OPENED
    to[T_STACK + to[T_NUM_STACK]] = current
    to[T_NUM_STACK] += 1
    return True


@native
def pop_branch(graphs: Array, tr: Array, to: Array) -> bool:
    if tr[T_SIGN] != 0 or tr[T_PHASE] == T_OPENED or tr[T_NUM_STACK] == 0:
        return False
    if not may_leave(graphs, tr) or num_ahead(graphs, tr, tr[T_CURRENT]) > 0:
        return False
    copy_trace(to, tr)
    to[T_NUM_STACK] -= 1
    to[T_CURRENT] = tr[T_STACK + to[T_NUM_STACK]]
    to[T_STACK + to[T_NUM_STACK]] = 0
    to[T_PHASE] = T_BRANCHED
    return True


@native
def is_like_another(graphs: Array, tr: Array, i: int) -> bool:
    """Whether the current atom's `i`-th bond leads to a last atom like that of one before it."""
    current = tr[T_CURRENT]
    bond = bond_ahead(graphs, tr, current, i)
    atom = across(graphs, tr, bond, current)
    if graphs[beside_at(tr, atom)] != 1:
        return False
    order = graphs[bond_at(tr, bond) + 2]
    for k in range(i):
        before = bond_ahead(graphs, tr, current, k)
        if before >= 0 and graphs[bond_at(tr, before) + 2] == order:
            other = across(graphs, tr, before, current)
            like = graphs[token_at(tr, other)] == graphs[token_at(tr, atom)]
            if like and graphs[beside_at(tr, other)] == 1:
                return True
    return False


@native
def may_enter(graphs: Array, tr: Array) -> bool:
    """Whether an atom may come next: without a branch there is no way back to the current one."""
    if not may_leave(graphs, tr):
        return False
    return tr[T_PHASE] == T_OPENED or num_ahead(graphs, tr, tr[T_CURRENT]) <= 1


@native
def enter_atom(tr: Array, bond: int, atom: int, to: Array) -> None:
    """Write the atom that this bond leads to, or the first one (with a bond of -1)."""
    copy_trace(to, tr)
    to[T_VISITED] |= 1 << atom
    if bond >= 0:
        to[T_USED] |= 1 << bond
    to[T_CURRENT], to[T_PHASE], to[T_SIGN] = atom, T_NUMBERS, 0


# -- where a trace ends ----------------------------------------------------------------------------


@native
def next_ring(graphs: Array, tr: Array, bond: int, to: Array) -> int:
    """Open a ring over this bond; the characters that it takes, 0 where it cannot be."""
    must = own_sign(graphs, tr, bond) if tr[T_SIGN] == 0 else 0
    written = must if must != 0 else tr[T_SIGN]
    if not open_ring(graphs, tr, first_number(tr), bond, written, to):
        return 0
    return 2 if must != 0 else 1


@native
def next_number(graphs: Array, tr: Array, ahead: int, to: Array) -> int:
    """The next ring number of the ending at the current atom: its characters, 0 for none."""
    current = tr[T_CURRENT]
    for k in range(tr[T_NUM_RINGS]):
        at = T_RINGS + k * T_RING_WIDTH
        if tr[at + 1] == current:
            must = 0
            if tr[at + 3] == 0 and tr[T_SIGN] == 0:
                must = own_sign(graphs, tr, tr[at + 2])
            if close_ring(graphs, tr, k, must if must != 0 else tr[T_SIGN], to):
                return 2 if must != 0 else 1
    # The bonds ahead whose atoms are reached in another way must be ring bonds.
    committed, reached, reserved = committed_atoms(graphs, tr), 0, 0
    for i in range(graphs[beside_at(tr, current)]):
        bond = bond_ahead(graphs, tr, current, i)
        if bond >= 0:
            atom = 1 << across(graphs, tr, bond, current)
            if (committed | reached) & atom:
                reserved |= 1 << bond
                length = next_ring(graphs, tr, bond, to)
                if length > 0:
                    return length
            else:
                reached |= flood(graphs, tr, atom, tr[T_VISITED] | committed)
    if tr[T_SIGN] == 0:
        return 0
    # A sign may also be meant for a ring that could have been a branch.
    leaves = ahead == 1 and may_leave(graphs, tr)
    for i in range(graphs[beside_at(tr, current)]):
        bond = bond_ahead(graphs, tr, current, i)
        if bond >= 0 and not (leaves and fits(graphs, tr, bond, tr[T_SIGN])):
            length = next_ring(graphs, tr, bond, to)
            if length > 0:
                return length
    return 0


@native
def next_trace(graphs: Array, tr: Array, to: Array) -> int:
    """The next piece of the ending: its characters; 0 where the trace has a sign that fits nothing.

    Surprising: what comes after a sign is what came before it, less the sign.
    """
    current = tr[T_CURRENT]
    if current < 0:
        enter_atom(tr, -1, 0, to)
        return graphs[token_at(tr, 0) + 1]
    ahead = num_ahead(graphs, tr, current)
    if tr[T_PHASE] == T_NUMBERS:
        length = next_number(graphs, tr, ahead, to)
        if length > 0:
            return length
    if tr[T_PHASE] != T_OPENED and tr[T_SIGN] == 0:
        if ahead == 0:
            return 1 if pop_branch(graphs, tr, to) else 0
        if ahead > 1:
            return 1 if push_branch(graphs, tr, to) else 0
    if not may_enter(graphs, tr):
        return 0
    for i in range(graphs[beside_at(tr, current)]):
        bond = bond_ahead(graphs, tr, current, i)
        if bond >= 0:
            must = own_sign(graphs, tr, bond) if tr[T_SIGN] == 0 else 0
            if fits(graphs, tr, bond, must if must != 0 else tr[T_SIGN]):
                atom = across(graphs, tr, bond, current)
                enter_atom(tr, bond, atom, to)
                return graphs[token_at(tr, atom) + 1] + (1 if must != 0 else 0)
    return 0


# -- what may follow a trace -----------------------------------------------------------------------


@native
def way(graphs: Array, tr: Array, i: int, to: Array, scratch: Array) -> int:
    """The `i`-th thing to write next: its first character, 0 to pass it over, -1 for no more."""
    current, beside = tr[T_CURRENT], 0
    if current < 0:
        if i >= graphs[tr[T_GRAPH] * G_SIZE + G_ATOMS]:
            return -1
        enter_atom(tr, -1, i, to)
        to[T_LEFT] = graphs[token_at(tr, i) + 1] - 1
        return graphs[token_at(tr, i) + 2]
    beside = graphs[beside_at(tr, current)]
    if i < MAX_NUMBERS:
        if i >= tr[T_NUM_RINGS] or tr[T_PHASE] != T_NUMBERS:
            return 0
        number = tr[T_RINGS + i * T_RING_WIDTH]
        return digit(number) if close_ring(graphs, tr, i, tr[T_SIGN], to) else 0
    i -= MAX_NUMBERS
    if i < beside * MAX_NUMBERS:
        number, place = i % MAX_NUMBERS, i // MAX_NUMBERS
        bond = bond_ahead(graphs, tr, current, place)
        first = first_number(tr)
        if tr[T_PHASE] != T_NUMBERS or bond < 0 or first < 0 or is_taken(tr, number):
            return 0
        if (number >= FREE_NUMBERS and number != first) or is_like_another(graphs, tr, place):
            return 0
        return digit(number) if open_ring(graphs, tr, number, bond, tr[T_SIGN], to) else 0
    i -= beside * MAX_NUMBERS
    if i < 4:
        return bond_sign(graphs, tr, i + 1, to, scratch)
    i -= 4
    if i == 0:
        return 40 if push_branch(graphs, tr, to) else 0
    if i == 1:
        return 41 if pop_branch(graphs, tr, to) else 0
    i -= 2
    if i >= beside or not may_enter(graphs, tr):
        return -1
    bond = bond_ahead(graphs, tr, current, i)
    if bond < 0 or not fits(graphs, tr, bond, tr[T_SIGN]) or is_like_another(graphs, tr, i):
        return 0
    atom = across(graphs, tr, bond, current)
    enter_atom(tr, bond, atom, to)
    to[T_LEFT] = graphs[token_at(tr, atom) + 1] - 1
    return graphs[token_at(tr, atom) + 2]


@native
def digit(number: int) -> int:
    """The character of a ring number."""
    return 49 + number if number < 9 else 48


@native
def bond_sign(graphs: Array, tr: Array, order: int, to: Array, scratch: Array) -> int:
    """The sign of this order, if a bond that the current atom may go on with needs it; else 0."""
    if tr[T_SIGN] != 0:
        return 0
    needed = False
    for k in range(tr[T_NUM_RINGS]):
        at = T_RINGS + k * T_RING_WIDTH
        if tr[at + 1] == tr[T_CURRENT]:
            needed = needed or own_sign(graphs, tr, tr[at + 2]) == order
    for i in range(graphs[beside_at(tr, tr[T_CURRENT])]):
        bond = bond_ahead(graphs, tr, tr[T_CURRENT], i)
        if bond >= 0:
            needed = needed or own_sign(graphs, tr, bond) == order
    if not needed:
        return 0
    copy_trace(to, tr)
    to[T_SIGN] = order
    if next_trace(graphs, to, scratch) == 0:
        return 0
    if order == 1:
        return 45
    if order == 2:
        return 61
    return 35 if order == 3 else 36
