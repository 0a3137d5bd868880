"""Many traces at once: all that a text may be read as, in the molecules of one set.

A reading is six numbers, a row: which graph, the trace, and how many characters of its last atom
are still to be read. `expand` reads one more character in every way; `find_nearest` says how far
each molecule's end is. `render_graphs` makes the graphs that both look at.

Surprising: sets of readings are told apart by how many they are and by 126 bits mixed from them.

    >>> graphs = render_graphs((("CO",),))
    >>> len(graphs) == G_SIZE, [chr(graphs[G_TOKENS + 2 + i * G_TOKEN_WIDTH]) for i in (0, 1)]
    (True, ['C', 'O'])
"""

from __future__ import annotations

from rel_batch.constraints.molecules.graphs import Graph, read_graph
from rel_batch.constraints.molecules.states import Array, States, native
from rel_batch.constraints.molecules.traces import (
    G_BESIDE,
    G_BESIDE_WIDTH,
    G_BOND_WIDTH,
    G_ENDS,
    G_MOLECULE,
    G_SIZE,
    G_TOKEN_WIDTH,
    G_TOKENS,
    MAX_BESIDE,
    MAX_TOKEN,
    MAX_TRACE_ATOMS,
    MAX_TRACE_BONDS,
    T_CURRENT,
    T_GRAPH,
    T_LEFT,
    T_NUM_RINGS,
    T_NUM_STACK,
    T_PHASE,
    T_RING_WIDTH,
    T_RINGS,
    T_SIGN,
    T_STACK,
    T_USED,
    T_VISITED,
    is_whole_trace,
    next_trace,
    token_at,
    way,
)

ROW = 6  # numbers of a reading
RAW = ROW + 3  # a character, a reading, and its signature
GROUP = 5  # a character, how many readings it leads to, from which on, and their signature
MAX_WAYS = 64  # readings that one may become with one more character
TABLE = 1 << 16  # to tell equal readings
DISTANCES = 1 << 16  # distances that are remembered, three numbers each


def render_graphs(molecules: tuple[tuple[str, ...], ...]) -> list[int]:
    """Every graph as one row of numbers. Raises ValueError for one that is too large."""
    numbers: dict[str, int] = {}
    graphs: list[int] = []
    for molecule, spellings in enumerate(molecules):
        for smiles in spellings:
            graphs += _graph_row(read_graph(smiles), molecule, numbers)
    return graphs


def _graph_row(graph: Graph, molecule: int, numbers: dict[str, int]) -> list[int]:
    sizes = (len(graph.tokens), len(graph.bonds), *map(len, graph.bonds_of))
    limits = (MAX_TRACE_ATOMS, MAX_TRACE_BONDS, *(MAX_BESIDE for _ in graph.bonds_of))
    if any(size > limit for size, limit in zip(sizes, limits, strict=True)):
        raise ValueError(f"more than {MAX_TRACE_ATOMS} atoms or {MAX_TRACE_BONDS} bonds: {graph}")
    row = [0] * G_SIZE
    row[:3] = [len(graph.tokens), len(graph.bonds), molecule]
    for atom, token in enumerate(graph.tokens):
        if len(token) > MAX_TOKEN:
            raise ValueError(f"an atom of more than {MAX_TOKEN} characters: {token}")
        at = G_TOKENS + atom * G_TOKEN_WIDTH
        number = numbers.setdefault(token, len(numbers))
        row[at : at + 2 + len(token)] = [number, len(token), *map(ord, token)]
        at = G_BESIDE + atom * G_BESIDE_WIDTH
        bonds = graph.bonds_of[atom]
        row[at : at + 1 + len(bonds)] = [len(bonds), *bonds]
    for number, bond in enumerate(graph.bonds):
        at = G_ENDS + number * G_BOND_WIDTH
        row[at : at + G_BOND_WIDTH] = [*bond.ends, bond.order, int(bond.implicit)]
    return row


def first_rows(graphs: list[int]) -> list[int]:
    """The readings of no text: each graph from its start."""
    trace = [0] * (T_RINGS + 1)
    trace[T_CURRENT] = -1
    rows: list[int] = []
    for graph in range(len(graphs) // G_SIZE):
        trace[T_GRAPH] = graph
        rows += [0] * ROW
        pack_trace(trace, rows, graph * ROW)
    return rows


@native
def pack_trace(tr: Array, rows: Array, at: int) -> None:
    """Write a trace as one row."""
    head = tr[T_GRAPH] | tr[T_LEFT] << 16 | (tr[T_CURRENT] + 1) << 20 | tr[T_PHASE] << 25
    rows[at] = head | tr[T_SIGN] << 27 | tr[T_NUM_STACK] << 30 | tr[T_NUM_RINGS] << 34
    rows[at + 1] = tr[T_VISITED] | tr[T_USED] << 12
    for i in range(2, ROW):
        rows[at + i] = 0
    for i in range(tr[T_NUM_STACK]):
        rows[at + 2] |= tr[T_STACK + i] << 5 * i
    for i in range(tr[T_NUM_RINGS]):
        k = T_RINGS + i * T_RING_WIDTH
        ring = tr[k] | tr[k + 1] << 4 | tr[k + 2] << 8 | tr[k + 3] << 13
        rows[at + 3 + i // 4] |= ring << 14 * (i % 4)


@native
def unpack_trace(rows: Array, at: int, tr: Array) -> None:
    """Make `tr` the trace of this row."""
    head = rows[at]
    tr[T_GRAPH], tr[T_LEFT], tr[T_CURRENT] = head & 65535, head >> 16 & 15, (head >> 20 & 31) - 1
    tr[T_PHASE], tr[T_SIGN] = head >> 25 & 3, head >> 27 & 7
    tr[T_NUM_STACK], tr[T_NUM_RINGS] = head >> 30 & 15, head >> 34 & 15
    tr[T_VISITED], tr[T_USED] = rows[at + 1] & 4095, rows[at + 1] >> 12
    for i in range(tr[T_NUM_STACK]):
        tr[T_STACK + i] = rows[at + 2] >> 5 * i & 31
    for i in range(tr[T_NUM_RINGS]):
        k = T_RINGS + i * T_RING_WIDTH
        ring = rows[at + 3 + i // 4] >> 14 * (i % 4)
        tr[k], tr[k + 1], tr[k + 2], tr[k + 3] = (
            ring & 15,
            ring >> 4 & 15,
            ring >> 8 & 31,
            ring >> 13 & 1,
        )


@native
def sign_row(rows: Array, at: int, salt: int, to: Array, place: int) -> None:
    """Mix a row to two numbers."""
    a = ((salt + 1) * 3935559000370003845) & 9223372036854775807
    b = ((salt + 1) * 2691343689449507681) & 9223372036854775807
    for i in range(ROW):
        a = ((a ^ rows[at + i]) * 2862933555777941757) & 9223372036854775807
        b = ((b + rows[at + i]) * 3202034522624059733) & 9223372036854775807
        a = a ^ (a >> 29)
        b = b ^ (b >> 31)
    to[place], to[place + 1] = a, b


@native
def add_row(tr: Array, ch: int, raw: Array, count: int, table: Array) -> int:
    """Write what the character leads to, unless it is there; how many rows there are."""
    at = count * RAW
    raw[at] = ch
    pack_trace(tr, raw, at + 1)
    sign_row(raw, at + 1, ch, raw, at + 1 + ROW)
    place, tries = raw[at + 1 + ROW] % TABLE, 0
    while tries < 64:
        tries += 1
        entry = table[1 + place]
        if entry >> 32 != table[0]:
            table[1 + place] = table[0] << 32 | count
            return count + 1
        other = (entry & 4294967295) * RAW
        if raw[other + 1 + ROW] == raw[at + 1 + ROW] and raw[other + 2 + ROW] == raw[at + 2 + ROW]:
            return count
        place = (place + 1) % TABLE
    return count + 1


@native
def expand(
    graphs: Array,
    rows: Array,
    count: int,
    states: States,
    raw: Array,
    table: Array,
    packed: Array,
    groups: Array,
) -> int:
    """Read one more character: what `count` readings become with each that fits some of them.

    The readings are written to `packed`, those of one character together; `groups` says which
    (`GROUP` numbers for each character, in order); how many characters there are. The scratch is
    `states` (three), `raw` (`MAX_WAYS * RAW` numbers for each reading) and `table`, which is kept.
    """
    table[0] += 1
    found = 0
    for r in range(count):
        unpack_trace(rows, r * ROW, states[0])
        here = states[0]
        following = states[1]
        if here[T_LEFT] > 0:
            at = token_at(here, here[T_CURRENT])
            ch = graphs[at + 2 + graphs[at + 1] - here[T_LEFT]]
            here[T_LEFT] -= 1
            found = add_row(here, ch, raw, found, table)
        else:
            i, ch = 0, 0
            while ch >= 0:
                ch = way(graphs, here, i, following, states[2])
                i += 1
                if ch > 0:
                    found = add_row(following, ch, raw, found, table)
    return group_rows(raw, found, packed, groups, states[0])


@native
def group_rows(raw: Array, count: int, packed: Array, groups: Array, at_char: Array) -> int:
    """Put the rows of each character together; how many characters there are."""
    for ch in range(128):
        at_char[ch] = 0
    for i in range(count):
        at_char[raw[i * RAW]] += 1
    number, first = 0, 0
    for ch in range(128):
        if at_char[ch] > 0:
            g = number * GROUP
            groups[g], groups[g + 1], groups[g + 2] = ch, at_char[ch], first
            groups[g + 3], groups[g + 4] = 0, 0
            first += at_char[ch]
            at_char[ch] = number
            number += 1
    for i in range(number):
        groups[i * GROUP + 1] = 0
    for i in range(count):
        g = at_char[raw[i * RAW]] * GROUP
        to = (groups[g + 2] + groups[g + 1]) * ROW
        for k in range(ROW):
            packed[to + k] = raw[i * RAW + 1 + k]
        groups[g + 1] += 1
        groups[g + 3] = (groups[g + 3] + raw[i * RAW + 1 + ROW]) & 9223372036854775807
        groups[g + 4] = (groups[g + 4] + raw[i * RAW + 2 + ROW]) & 9223372036854775807
    return number


@native
def trace_distance(graphs: Array, salt: int, states: States, notes: Array, distances: Array) -> int:
    """Characters of the ending of the first of `states`; each brings the end nearer by one."""
    total, count, here = 0, 0, 0
    known = 0
    while known == 0 and not is_whole_trace(graphs, states[here]):
        pack_trace(states[here], notes, 3 * count + 3)
        sign_row(notes, 3 * count + 3, salt, notes, 3 * count)
        notes[3 * count + 2] = total
        at = 3 * (notes[3 * count] % DISTANCES)
        if distances[at] == notes[3 * count] and distances[at + 1] == notes[3 * count + 1]:
            known = distances[at + 2]
            total += known
        else:
            length = next_trace(graphs, states[here], states[1 - here])
            if length == 0:
                return -1
            total += length
            count += 1
            here = 1 - here
    for i in range(count):
        at = 3 * (notes[3 * i] % DISTANCES)
        distances[at], distances[at + 1] = notes[3 * i], notes[3 * i + 1]
        distances[at + 2] = total - notes[3 * i + 2]
    return total


@native
def find_nearest(
    graphs: Array,
    salt: int,
    rows: Array,
    count: int,
    num_molecules: int,
    states: States,
    notes: Array,
    distances: Array,
    nearest: Array,
) -> int:
    """Characters to the end of each molecule, -1 for those that the readings do not lead to.

    -1 is returned if some reading could not be finished, which is an error. `salt` tells the graphs
    from others that `distances`, which is kept, was used for.
    """
    for i in range(num_molecules):
        nearest[i] = -1
    for r in range(count):
        unpack_trace(rows, r * ROW, states[0])
        tr = states[0]
        left = tr[T_LEFT]
        molecule = graphs[tr[T_GRAPH] * G_SIZE + G_MOLECULE]
        tr[T_LEFT] = 0
        length = trace_distance(graphs, salt, states, notes, distances)
        if length < 0:
            return -1
        length += left
        if nearest[molecule] < 0 or length < nearest[molecule]:
            nearest[molecule] = length
    return 0
