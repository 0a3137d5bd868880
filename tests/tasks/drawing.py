"""Draws texts that a constraint admits, to try laws on more than reference replies."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from rel_batch.constraints import Constraint
from rel_batch.constraints.machine import DEAD, Machine

_MOST_FREE_CHARS = 60


def admitted_by(constraint: Constraint) -> st.SearchStrategy[str]:
    """Texts that `constraint`, which must admit less than everything, admits."""
    assert constraint.expression is not None
    machine = Machine(constraint.expression, dict(constraint.rules))
    return st.integers(0, 2**32).map(lambda seed: _walk(machine, Random(seed)))


def _walk(machine: Machine, rng: Random) -> str:
    """Some characters at random, then the way to the nearest end that the machine knows."""
    machine.forget()
    state, text = machine.start, ""
    free = rng.randint(0, _MOST_FREE_CHARS)
    while free > 0 or not machine.is_final(state):
        chars = machine.next_chars(state)
        assert chars is not None
        ways = {char: machine.step(state, char) for char in sorted(chars)}
        ways = {char: after for char, after in ways.items() if after != DEAD}
        if not ways:
            break
        if free > 0:
            char = rng.choice(list(ways))
        else:
            char = min(ways, key=lambda char: machine.distance(ways[char]))
        state, text = ways[char], text + char
        free -= 1
    return text
