"""Writes an expression as one regular expression, in what all readers of them have in common.

    >>> from rel_batch.constraints.expressions import Text, Seq, Chars, Repeat
    >>> render(Seq((Text("<n>"), Repeat(Chars("0123456789"), 1, 3), Text("</n>"))), {})
    '<n>[0123456789]{1,3}</n>'

Python's `re`, xgrammar's converter and llguidance's engine read the result alike; the tests hold
them to it.

Surprising: `slash` exists because Lark ends a regular expression at a `/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rel_batch.constraints.expressions import (
    Chars,
    Expression,
    OneOf,
    Repeat,
    Rule,
    Seq,
    Text,
)

MAX_GRAMMAR_CHARS = 2_000_000
# A repeat of more items than this makes a backend slow or greedy for memory.
MAX_REPEAT = 100_000

_CONTROL_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class UntranslatableError(ValueError):
    """The constraint has no form in the notation; the message says why."""


def render(expression: Expression, rules: Mapping[str, Expression], *, slash: str = "/") -> str:
    """`expression` as a regular expression for a whole text. Raises UntranslatableError."""
    if uses_rules(expression) and recursive_rules(rules) & rules_in(expression, rules):
        raise UntranslatableError("a recursive grammar is no regular expression")
    known: dict[int, str] = {}

    def rendered(expression: Expression) -> str:
        found = known.get(id(expression))
        if found is None:
            found = known[id(expression)] = sized(new(expression))
        return found

    def grouped(expression: Expression) -> str:
        single = isinstance(expression, Chars) or (
            isinstance(expression, Text) and len(expression.text) == 1
        )
        return rendered(expression) if single else f"(?:{rendered(expression)})"

    def new(expression: Expression) -> str:
        match expression:
            case Text(text=text):
                return "".join(_char(c, slash) for c in text)
            case Chars(chars=chars):
                return _char_class(chars, slash)
            case Rule(name=name):
                return f"(?:{rendered(rules[name])})"
            case Seq(parts=parts):
                return "".join(
                    f"(?:{rendered(p)})" if isinstance(p, OneOf) else rendered(p) for p in parts
                )
            case OneOf(options=options):
                return "|".join(rendered(option) for option in options)
            case Repeat(item=item, most=most):
                return "" if most == 0 else grouped(item) + repeat_suffix(expression)
            case _:
                raise UntranslatableError(f"{expression.text_form()} is no grammar")

    return rendered(expression)


def _char(char: str, slash: str) -> str:
    if char in _CONTROL_ESCAPES:
        return _CONTROL_ESCAPES[char]
    if char == "/":
        return slash
    return "\\" + char if char in ".^$*+?{}[]\\|()" else char


def _char_class(chars: str, slash: str) -> str:
    distinct = class_members(chars)
    if len(distinct) == 1:
        return _char(distinct, slash)
    escaped = (
        "\\" + c if c in "\\]^-[" else slash if c == "/" else _CONTROL_ESCAPES.get(c, c)
        for c in distinct
    )
    return "[" + "".join(escaped) + "]"


def class_members(chars: str) -> str:
    """`chars` as every reader of a character class gets them right.

    Each once, because a doubled `&` or `~` is an operator in some notations, and never `^` first:
    xgrammar 0.2.8 reads an escaped one there as "none of".
    """
    distinct = "".join(dict.fromkeys(chars))
    return distinct.replace("^", "") + "^" if "^" in distinct else distinct


def repeat_suffix(repeat: Repeat) -> str:
    """How `repeat` is written after its item. Raises UntranslatableError for a huge bound."""
    if max(repeat.least, repeat.most or 0) > MAX_REPEAT:
        raise UntranslatableError(f"it repeats a part more than {MAX_REPEAT:,} times")
    return repeat.suffix


def sized(text: str) -> str:
    """`text`, unless it is too long for any backend. Raises UntranslatableError."""
    if len(text) > MAX_GRAMMAR_CHARS:
        raise UntranslatableError(f"its grammar has more than {MAX_GRAMMAR_CHARS:,} characters")
    return text


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside; none for a leaf or a use of a rule."""
    match expression:
        case Seq(parts=parts):
            return parts
        case OneOf(options=options):
            return options
        case Repeat(item=item):
            return (item,)
        case _:
            return ()


def parts_in(
    expression: Expression, rules: Mapping[str, Expression], *, follow: bool = True
) -> Iterator[Expression]:
    """`expression` and all inside it, each once; `follow` goes on in the rules that it uses."""
    seen: set[int] = set()
    used: set[str] = set()
    pending = [expression]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if follow and isinstance(current, Rule) and current.name not in used:
            used.add(current.name)
            pending.append(rules[current.name])
        pending.extend(parts_of(current))


def uses_rules(expression: Expression) -> bool:
    """Whether `expression` itself uses any rule."""
    return any(isinstance(part, Rule) for part in parts_in(expression, {}, follow=False))


def rules_in(expression: Expression, rules: Mapping[str, Expression]) -> set[str]:
    """The names of the rules that `expression` uses, directly or through another rule."""
    return {part.name for part in parts_in(expression, rules) if isinstance(part, Rule)}


def recursive_rules(rules: Mapping[str, Expression]) -> set[str]:
    """The rules that can reach themselves."""
    return {name for name, expression in rules.items() if name in rules_in(expression, rules)}
