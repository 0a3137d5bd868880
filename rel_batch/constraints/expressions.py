"""What a reply may look like, as a plain value: a small algebra of expressions.

An expression denotes a set of strings. It is built from `Text`, `Chars`, `Seq`, `OneOf`,
`Repeat` and `Rule`, compares and hashes by value, and can be read back by a person. The same
value is matched by `machine.py` and translated for every decoding backend by `dialects.py`,
so that there is one source for what is allowed.

    >>> digits = Repeat(Chars("0123456789"), 1, 3)
    >>> Seq((Text("<n>"), digits, Text("</n>"))).text_form()
    "'<n>' [0123456789]{1,3} '</n>'"

Surprising: a leaf (an expression that consumes characters) is anything with the methods of
`Leaf`. `Text` and `Chars` are the two that every backend knows; a leaf of another kind (a set of
names, a molecule) has no grammar and needs our own matcher in the engine.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class Expression:
    """Base of all expressions; carries no data."""

    __slots__ = ()

    def text_form(self) -> str:
        """The expression in an EBNF-like notation for people."""
        raise TypeError(f"{type(self).__name__} has no text form")


@runtime_checkable
class Leaf(Protocol):
    """An expression that consumes characters one at a time.

    States are hashable and immutable. `step` returning None is final: no extension of the
    rejected prefix is accepted. From every state that `step` returns, some continuation
    leads to a state that is final.
    """

    def first(self) -> Hashable:
        """The state before any character."""
        ...

    def step(self, state: Hashable, char: str) -> Hashable | None:
        """The state after `char`, or None if no accepted string goes on like that."""
        ...

    def is_final(self, state: Hashable) -> bool:
        """Whether the characters read so far are a whole string of the expression."""
        ...

    def next_chars(self, state: Hashable) -> frozenset[str] | None:
        """A superset of the characters that `step` takes from `state`; None for any."""
        ...

    def distance(self, state: Hashable) -> int:
        """UTF-8 bytes of a text that leads from `state` to a final one; 0 where it is final.

        It need not be the shortest, but some character must lead to a state that is nearer by
        that character's bytes: who follows falling distances arrives.
        """
        ...

    def text_form(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """Exactly this text, which is not empty."""

    text: str

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("Text must not be empty")

    def first(self) -> int:
        return 0

    def step(self, state: Hashable, char: str) -> int | None:
        assert isinstance(state, int)
        return state + 1 if state < len(self.text) and self.text[state] == char else None

    def is_final(self, state: Hashable) -> bool:
        return state == len(self.text)

    def next_chars(self, state: Hashable) -> frozenset[str]:
        assert isinstance(state, int)
        return frozenset(self.text[state : state + 1])

    def distance(self, state: Hashable) -> int:
        assert isinstance(state, int)
        return num_bytes(self.text[state:])

    def text_form(self) -> str:
        return repr(self.text)


@dataclass(frozen=True, slots=True)
class Chars(Expression):
    """One character out of `chars`, which is not empty."""

    chars: str

    def __post_init__(self) -> None:
        if not self.chars:
            raise ValueError("Chars must not be empty")

    def first(self) -> int:
        return 0

    def step(self, state: Hashable, char: str) -> int | None:
        return 1 if state == 0 and char in self.chars else None

    def is_final(self, state: Hashable) -> bool:
        return state == 1

    def next_chars(self, state: Hashable) -> frozenset[str]:
        return frozenset(self.chars) if state == 0 else frozenset()

    def distance(self, state: Hashable) -> int:
        return min(num_bytes(char) for char in self.chars) if state == 0 else 0

    def text_form(self) -> str:
        return f"[{self.chars}]"


@dataclass(frozen=True, slots=True)
class Nothing(Expression):
    """No text at all, and why: a constraint that cannot be met by any reply."""

    reason: str

    def first(self) -> int:
        return 0

    def step(self, state: Hashable, char: str) -> None:  # noqa: ARG002
        return None

    def is_final(self, state: Hashable) -> bool:  # noqa: ARG002
        return False

    def next_chars(self, state: Hashable) -> frozenset[str]:  # noqa: ARG002
        return frozenset()

    def distance(self, state: Hashable) -> int:  # noqa: ARG002
        return 1 << 30

    def text_form(self) -> str:
        return f"<nothing: {self.reason}>"


@dataclass(frozen=True, slots=True)
class Seq(Expression):
    """Its parts, one after the other."""

    parts: tuple[Expression, ...]

    def text_form(self) -> str:
        return " ".join(part.text_form() for part in self.parts)


@dataclass(frozen=True, slots=True)
class OneOf(Expression):
    """Any one of its options, of which there is at least one."""

    options: tuple[Expression, ...]

    def __post_init__(self) -> None:
        if not self.options:
            raise ValueError("OneOf must have an option")

    def text_form(self) -> str:
        return "(" + " | ".join(option.text_form() for option in self.options) + ")"


@dataclass(frozen=True, slots=True)
class Repeat(Expression):
    """`item` from `least` to `most` times; `most=None` is without bound."""

    item: Expression
    least: int
    most: int | None

    def __post_init__(self) -> None:
        if self.least < 0 or (self.most is not None and self.most < self.least):
            raise ValueError(f"no number of repeats is in {self.least}..{self.most}")

    def text_form(self) -> str:
        form = self.item.text_form()
        if isinstance(self.item, Seq):
            form = f"({form})"
        return form + self.suffix

    @property
    def suffix(self) -> str:
        """`*`, `+`, `?` or `{m,n}`, as grammars and regular expressions write it."""
        if self.most is None:
            return {0: "*", 1: "+"}.get(self.least, f"{{{self.least},}}")
        return "?" if (self.least, self.most) == (0, 1) else f"{{{self.least},{self.most}}}"


@dataclass(frozen=True, slots=True)
class Rule(Expression):
    """A use of the rule `name`, which `Constraint.rules` defines; rules may be recursive.

    A rule must not call itself before it has consumed a character (no left recursion).
    """

    name: str

    def text_form(self) -> str:
        return self.name


def num_bytes(text: str) -> int:
    """The length of `text` in UTF-8, which also encodes lone surrogates here."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def optional(item: Expression) -> Expression:
    """`item` or nothing."""
    return Repeat(item, 0, 1)


def texts(options: tuple[str, ...]) -> Expression:
    """Any one of the given texts."""
    return Text(options[0]) if len(options) == 1 else OneOf(tuple(Text(o) for o in options))


def separated(item: Expression, separator: str, least: int, most: int | None) -> Expression:
    """`item` from `least` (at least 1) to `most` times with `separator` in between."""
    tail = Repeat(Seq((Text(separator), item)), least - 1, None if most is None else most - 1)
    return item if most == 1 else Seq((item, tail))
