"""The constraints that are a short list of texts, among which a model can be asked to choose.

    >>> from rel_batch.constraints import Constraint, texts
    >>> options_of(Constraint("format", texts(("<Yes>", "<No>"))))
    ('<Yes>', '<No>')
    >>> options_of(Constraint("none")) is None
    True

Surprising: no option may begin with another one. Then the model says exactly one of them, or none,
and their probabilities need no end-of-sequence to add up to at most 1.
"""

from __future__ import annotations

import itertools

from rel_batch.constraints import Constraint, OneOf, Text

MAX_OPTIONS = 64


def options_of(constraint: Constraint) -> tuple[str, ...] | None:
    """The texts that `constraint` admits, in their order; None if they are no short list, or if
    one begins with another."""
    expression = constraint.expression
    if not isinstance(expression, OneOf) or len(expression.options) > MAX_OPTIONS:
        return None
    options: list[str] = []
    for option in expression.options:
        if not isinstance(option, Text):
            return None
        options.append(option.text)
    ordered = sorted(options)
    if any(after.startswith(before) for before, after in itertools.pairwise(ordered)):
        return None
    return tuple(options)
