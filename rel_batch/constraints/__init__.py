"""What a reply may look like: a plain value that any engine can translate.

A `Constraint` names its rung of the ladder (`kind`) and holds the expression that the whole
reply must match. `matches` is the judge: every decoding backend is held against it, and every
reply is checked with it after decoding.

    >>> from rel_batch.constraints import Constraint, Text, texts
    >>> constraint = Constraint("format", texts(("<Yes>", "<No>")))
    >>> constraint.matches("<Yes>"), constraint.matches("yes")
    (True, False)

Surprising: the kind `none` has no expression and admits every text.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rel_batch.constraints.expressions import (
    Chars,
    Expression,
    Nothing,
    OneOf,
    Repeat,
    Rule,
    Seq,
    Text,
    optional,
    separated,
    texts,
)
from rel_batch.constraints.machine import Machine
from rel_batch.constraints.subset import Subset

__all__ = [
    "ASSISTED",
    "ASSISTED_MARK",
    "JSON_KINDS",
    "KINDS",
    "Chars",
    "Constraint",
    "Expression",
    "Kind",
    "Nothing",
    "OneOf",
    "Repeat",
    "Rule",
    "Seq",
    "Subset",
    "Text",
    "optional",
    "separated",
    "texts",
]

Kind = Literal[
    "none",
    "format",
    "json",
    "regex",
    "syntax",
    "set",
    "ascending",
    "json_set",
    "json_ascending",
    "molecule",
    "formula",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Kinds that hand the model a part of the answer: what is measured under one never is a headline.
ASSISTED: frozenset[str] = frozenset({"formula"})
ASSISTED_MARK = " (assisted)"
JSON_KINDS: tuple[Kind, ...] = ("json", "json_set", "json_ascending")


@dataclass(frozen=True, slots=True)
class Constraint:
    """The texts that a whole reply may be.

    Attributes:
        kind: rung of the ladder ("none", "format", ...).
        expression: what the reply must match; None admits everything.
        rules: named rules that `expression` uses, as (name, expression) pairs.
        schema: for the kinds of JSON, the JSON schema of the same texts, as JSON text: what an
            engine's JSON mode is given.

    Equal values are one constraint: they share a compiled grammar and a machine.
    """

    kind: Kind
    expression: Expression | None = None
    rules: tuple[tuple[str, Expression], ...] = ()
    schema: str | None = None

    def matches(self, text: str) -> bool:
        """Whether `text` as a whole is admitted."""
        return self.expression is None or _machine(self).matches(text)

    def admits_prefix(self, text: str) -> bool:
        """Whether some admitted text starts with `text`."""
        return self.expression is None or _machine(self).admits_prefix(text)

    @property
    def digest(self) -> str:
        """16 hex digits that are equal for equal constraints, across processes."""
        return hashlib.sha256(self.text_form().encode()).hexdigest()[:16]

    def text_form(self) -> str:
        """The constraint in an EBNF-like notation for people."""
        if self.expression is None:
            return "anything"
        lines = [self.expression.text_form()]
        lines += [f"{name} = {expression.text_form()}" for name, expression in self.rules]
        if self.schema is not None:
            lines.append(f"schema {self.schema}")
        return "\n".join(lines)


@functools.lru_cache(maxsize=256)
def _machine(constraint: Constraint) -> Machine:
    assert constraint.expression is not None
    rules: Mapping[str, Expression] = dict(constraint.rules)
    return Machine(constraint.expression, rules)
