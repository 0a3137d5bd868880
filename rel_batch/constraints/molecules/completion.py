"""How a prefix ends: the search for an ending, which is also the proof that there is one.

`complete` writes an ending one character at a time along the choices of `options.py`, goes back
where the automaton refuses, and gives up after `MAX_WASTED` characters in vain or where an ending
would get longer than `MAX_ENDING`. A prefix for which no ending is found is refused, so no
accepted prefix is a dead end.

Law: the ending found from a prefix, less its first character, is the one found from the prefix
with that character. For the search from there walks a part of the same tree in the same order.
"""

from __future__ import annotations

from rel_batch.constraints.molecules.automaton import (
    flush,
    is_molecule,
    step,
)
from rel_batch.constraints.molecules.options import (
    NO_MORE,
    SKIP,
    option,
)
from rel_batch.constraints.molecules.pairing import wanting
from rel_batch.constraints.molecules.states import (
    AFTER_B,
    AFTER_C,
    LEX,
    NUM_RINGS,
    NUM_STACK,
    Array,
    States,
    copy_state,
    native,
)

MAX_ENDING = 160  # characters
MAX_WASTED = 110  # characters tried in one search that are not on the way


@native
def complete(st: Array, states: States, ending: Array) -> int:
    """The number of characters of an ending of `st`, which are written to `ending`; -1 for none.

    `states` is scratch: `MAX_ENDING + 3` states. `ending` needs `3 * MAX_ENDING` places.
    """
    tried, wants = MAX_ENDING, 2 * MAX_ENDING
    trial = states[MAX_ENDING + 1]
    copy_state(states[0], st)
    depth, steps = 0, 0
    ending[tried] = 0
    entered = True
    while depth >= 0:
        here = states[depth]
        if entered:
            entered = False
            if here[LEX] <= AFTER_B and here[NUM_STACK] == 0 and here[NUM_RINGS] == 0:
                copy_state(trial, here)
                if is_molecule(trial):
                    return depth
            if here[LEX] in (AFTER_C, AFTER_B):
                copy_state(trial, here)
                if flush(trial):
                    copy_state(here, trial)
            ending[wants + depth] = wanting(here, states[MAX_ENDING + 2])
        if here[LEX] in (AFTER_C, AFTER_B):  # it could not be carbon or boron
            ch = NO_MORE
            if ending[tried + depth] == 0:
                ch = 108 if here[LEX] == AFTER_C else 114
        else:
            ch = option(here, ending[tried + depth], ending[wants + depth])
        if ch == NO_MORE:
            depth -= 1
            continue
        ending[tried + depth] += 1
        if ch == SKIP:
            continue
        steps += 1
        if steps - depth > MAX_WASTED:
            return -1
        following = states[depth + 1]
        copy_state(following, here)
        if not step(following, ch):
            continue
        ending[depth] = ch
        depth += 1
        if depth == MAX_ENDING:
            return -1
        ending[tried + depth] = 0
        entered = True
    return -1
