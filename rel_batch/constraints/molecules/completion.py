"""How a prefix ends: the search for an ending, which is also the proof that there is one.

`complete` writes an ending one character at a time along the choices of `options.py`, goes back
where the automaton refuses, and gives up after `MAX_WASTED` characters in vain or where an ending
would get longer than `MAX_ENDING`. A prefix for which no ending is found is refused, so no
accepted prefix is a dead end. How a search goes is remembered for every state on its way
(`memory.py`), since most searches soon come to where another one has been.

Law: the ending found from a prefix, less its first character, is the one found from the prefix
with that character. For the search from there walks a part of the same tree in the same order.
"""

from __future__ import annotations

from rel_batch.constraints.molecules.automaton import (
    flush,
    is_molecule,
    step,
)
from rel_batch.constraints.molecules.memory import (
    DEEP,
    FOUND,
    GIVEN_UP,
    LENGTH,
    NONE_LEFT,
    WASTED,
    recall,
    remember,
    sign,
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
# What a search notes of each character on its way: the character, how many were tried in its
# place, what `wanting` said before it, how many had been tried by then, how far the search came
# from there, and the signature of the state.
CHARS, TRIED, WANTS, ENTERED, DEEPEST, FIRST, SECOND = (MAX_ENDING * i for i in range(7))
NOTES = 7 * MAX_ENDING


@native
def complete(st: Array, states: States, notes: Array, words: Array, memo: Array, write: int) -> int:
    """The number of characters of an ending of `st`; -1 for none.

    The characters are the first numbers of `notes` where `write` is 1; otherwise what `memo` holds
    of earlier searches is used. `states` is scratch: `MAX_ENDING + 3` states. `notes` needs `NOTES`
    places, `words` as many as a state.
    """
    copy_state(states[0], st)
    depth, steps, known = 0, 0, 0
    entered = True
    while depth >= 0 and depth < MAX_ENDING and steps - depth <= MAX_WASTED:
        here = states[depth]
        if entered:
            entered = False
            known = enter(here, states, depth, steps, notes, words, memo, write)
            outcome, wasted = known & 3, known >> WASTED & 1023
            if outcome == GIVEN_UP or depth + (known >> DEEP) >= MAX_ENDING:
                break
            if outcome == FOUND:
                if steps - depth + wasted <= MAX_WASTED:
                    return succeed(depth, steps, known, notes, memo)
                break
            steps += wasted
            notes[DEEPEST + depth] += known >> DEEP
        ch = next_char(here, notes, depth) if known == 0 else NO_MORE
        if ch == NO_MORE:
            deepest = notes[DEEPEST + depth]
            if known == 0:
                wasted = steps - notes[ENTERED + depth]
                first, second = notes[FIRST + depth], notes[SECOND + depth]
                remember(first, second, memo, NONE_LEFT, 0, wasted, deepest - depth)
            depth -= 1
            known = 0
            if depth >= 0:
                notes[DEEPEST + depth] = max(notes[DEEPEST + depth], deepest)
            continue
        notes[TRIED + depth] += 1
        if ch == SKIP:
            continue
        steps += 1
        following = states[depth + 1]
        copy_state(following, here)
        if step(following, ch):
            notes[CHARS + depth] = ch
            depth += 1
            entered = True
    if depth >= 0:
        remember(notes[FIRST], notes[SECOND], memo, GIVEN_UP, 0, 0, 0)
    return -1


@native
def enter(
    st: Array,
    states: States,
    depth: int,
    steps: int,
    notes: Array,
    words: Array,
    memo: Array,
    write: int,
) -> int:
    """Begin with the state at this depth; what is known of how it ends, 0 for nothing."""
    sign(st, words)
    notes[FIRST + depth], notes[SECOND + depth] = words[0], words[1]
    notes[ENTERED + depth], notes[DEEPEST + depth], notes[TRIED + depth] = steps, depth, 0
    known = recall(words[0], words[1], memo) if write == 0 else 0
    if known != 0:
        return known
    trial = states[MAX_ENDING + 1]
    if st[LEX] <= AFTER_B and st[NUM_STACK] == 0 and st[NUM_RINGS] == 0:
        copy_state(trial, st)
        if is_molecule(trial):
            return FOUND
    if st[LEX] in (AFTER_C, AFTER_B):
        copy_state(trial, st)
        if flush(trial):
            copy_state(st, trial)
    notes[WANTS + depth] = wanting(st, words)
    return 0


@native
def next_char(st: Array, notes: Array, depth: int) -> int:
    """What to try next in this state."""
    if st[LEX] in (AFTER_C, AFTER_B):  # it could not be carbon or boron
        letter = 108 if st[LEX] == AFTER_C else 114
        return letter if notes[TRIED + depth] == 0 else NO_MORE
    return option(st, notes[TRIED + depth], notes[WANTS + depth])


@native
def succeed(depth: int, steps: int, known: int, notes: Array, memo: Array) -> int:
    """Remember how each state on the way ends; the number of characters from the first one."""
    length = depth + (known >> LENGTH & 255)
    wasted = steps - depth + (known >> WASTED & 1023)
    deepest = depth + (known >> DEEP)
    for i in range(depth + 1):
        at = depth - i
        deepest = max(deepest, notes[DEEPEST + at])
        inside = wasted - notes[ENTERED + at] + at
        first, second = notes[FIRST + at], notes[SECOND + at]
        remember(first, second, memo, FOUND, length - at, inside, deepest - at)
    return length
