"""Draws texts that a constraint admits, to try laws on more than reference replies."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from rel_batch.constraints import Chars, Constraint, Expression, OneOf, Repeat, Rule, Seq, Text

_MOST_REPEATS = 6


def admitted_by(constraint: Constraint) -> st.SearchStrategy[str]:
    """Texts that `constraint`, which must admit less than everything, admits."""
    assert constraint.expression is not None
    expression, rules = constraint.expression, dict(constraint.rules)
    return st.integers(0, 2**32).map(lambda seed: _draw(expression, rules, Random(seed)))


def _draw(expression: Expression, rules: dict[str, Expression], rng: Random) -> str:
    match expression:
        case Text(text):
            return text
        case Chars():
            return rng.choice(expression.chars)
        case Seq(parts):
            return "".join(_draw(part, rules, rng) for part in parts)
        case OneOf(options):
            return _draw(rng.choice(options), rules, rng)
        case Repeat(item, least, most):
            top = least + _MOST_REPEATS if most is None else min(most, least + _MOST_REPEATS)
            return "".join(_draw(item, rules, rng) for _ in range(rng.randint(least, top)))
        case Rule(name):
            return _draw(rules[name], rules, rng)
        case _:
            raise TypeError(f"cannot draw from {expression!r}")
