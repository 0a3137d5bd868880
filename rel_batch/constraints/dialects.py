"""Translates a constraint for the decoding backends: xgrammar EBNF, llguidance Lark, a regex.

    >>> from rel_batch.constraints import Constraint, texts
    >>> constraint = Constraint("format", texts(("<Yes>", "<No>")))
    >>> render_ebnf(constraint)
    'root ::= "<Yes>" | "<No>"\\n'
    >>> render_regex(constraint)
    '<Yes>|<No>'

All functions are pure. `UntranslatableError` says why a constraint has no form in a notation: a
leaf that is no grammar, recursion in a regular expression, or a result that is too large. The
size is checked while the text grows, so that a hostile expression costs no more than the limit.

Surprising: llguidance reads text as terminals, takes as many characters for one as it can, and
never gives one back; a grammar cut into terminals at the wrong places is another grammar. So an
expression without rules becomes one terminal, and one with rules is cut where `_cuts_well` proves
that the longest terminal is the only one possible, or else into single characters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rel_batch.constraints import Constraint, regular
from rel_batch.constraints.expressions import (
    Chars,
    Expression,
    Leaf,
    OneOf,
    Repeat,
    Rule,
    Seq,
    Text,
)
from rel_batch.constraints.machine import Machine
from rel_batch.constraints.regular import UntranslatableError, repeat_suffix, sized
from rel_batch.constraints.subset import Subset

__all__ = [
    "MAX_ONE_TEXT_CHARS",
    "MAX_TEXT_CHARS",
    "UntranslatableError",
    "is_grammar",
    "is_long",
    "is_recursive",
    "render_ebnf",
    "render_lark",
    "render_regex",
]

# Characters of text in a constraint; what is used twice is counted once. Backends compile 25,000
# (1,000 names) in up to 0.8 s and 250,000 in up to 43 s, and xgrammar then takes 26 ms a JSON step.
MAX_TEXT_CHARS = 25_000
# Of one text: xgrammar's time grows with the square (two names of 5,000 characters take 9 to 20 s).
MAX_ONE_TEXT_CHARS = 300

_LARK_SLASH = "\\/"
_MAX_CUT_STATES = 2_000


def render_ebnf(constraint: Constraint) -> str:
    """The constraint in xgrammar's EBNF; its start rule is `root`."""
    expression, rules = _parsed(constraint)
    return _Grammar("root", "::=", _ebnf_text, _ebnf_chars, rules).render(expression)


def render_lark(constraint: Constraint) -> str:
    """The constraint in llguidance's Lark; its start rule is `start`."""
    expression, rules = _parsed(constraint)
    if not regular.uses_rules(expression):
        return f"start: /{regular.render(expression, rules, slash=_LARK_SLASH)}/\n"
    memo: dict[int, Expression] = {}
    expression = _grouped(expression, memo)
    rules = {name: _grouped(rule, memo) for name, rule in rules.items()}
    good = (cut for cut in _cuts(expression, rules) if _cuts_well(cut, rules))
    known = next(good, frozenset[Expression]())

    def terminal(expression: Expression) -> str | None:
        if expression in known:
            return f"/{regular.render(expression, {}, slash=_LARK_SLASH)}/"
        return None

    return _Grammar("start", ":", _lark_text, _lark_chars, rules, terminal).render(expression)


def render_regex(constraint: Constraint) -> str:
    """The constraint as one regular expression for the whole reply."""
    return regular.render(*_parsed(constraint))


def is_grammar(constraint: Constraint) -> bool:
    """Whether it is made of what every notation knows, and not of a leaf that is no grammar."""
    if constraint.expression is None:
        return False
    parts = regular.parts_in(constraint.expression, dict(constraint.rules))
    return all(
        isinstance(part, Text | Chars | Seq | OneOf | Repeat | Rule)
        or (isinstance(part, Subset) and part.is_linear)
        for part in parts
    )


def is_long(constraint: Constraint) -> bool:
    """Whether it lists more text than backends compile in a second."""
    if constraint.expression is None:
        return False
    lengths = [0]
    for part in regular.parts_in(constraint.expression, dict(constraint.rules)):
        match part:
            case Text(text=text):
                lengths.append(len(text))
            case Subset(names=names):
                lengths.extend(map(len, names))
            case _:
                pass
    return sum(lengths) > MAX_TEXT_CHARS or max(lengths) > MAX_ONE_TEXT_CHARS


def is_recursive(constraint: Constraint) -> bool:
    """Whether the constraint uses a rule that can reach itself, and so is no regular language
    as it is written."""
    expression, rules = _parsed(constraint)
    return bool(regular.recursive_rules(rules) & regular.rules_in(expression, rules))


def _parsed(constraint: Constraint) -> tuple[Expression, Mapping[str, Expression]]:
    if constraint.expression is None:
        raise UntranslatableError(
            "the constraint admits every text, so there is nothing to translate"
        )
    rules = dict(constraint.rules)
    written: dict[Subset, Expression] = {}

    def written_out(expression: Expression) -> Expression:
        """With ascending lists as the rules that they are."""
        match expression:
            case Subset(order="ascending"):
                if expression not in written:
                    try:
                        start, new = expression.ascending_rules(f"list{len(written)} ")
                    except ValueError as error:
                        raise UntranslatableError(str(error)) from error
                    written[expression] = start
                    rules.update(new)
                return written[expression]
            case Seq(parts=parts):
                return Seq(tuple(written_out(part) for part in parts))
            case OneOf(options=options):
                return OneOf(tuple(written_out(option) for option in options))
            case Repeat(item=item, least=least, most=most):
                return Repeat(written_out(item), least, most)
            case _:
                return expression

    if any(isinstance(part, Subset) for part in regular.parts_in(constraint.expression, rules)):
        for name, rule in constraint.rules:
            rules[name] = written_out(rule)
        return written_out(constraint.expression), rules
    return constraint.expression, rules


@dataclass(slots=True)
class _Grammar:
    """Writes rules in a notation. A list of options that stands inside another expression gets a
    rule of its own, so that one that is used twice (the item of a list) is written once."""

    start: str
    define: str
    text: Callable[[str], str]
    chars: Callable[[str], str]
    rules: Mapping[str, Expression]
    terminal: Callable[[Expression], str | None] = field(default=lambda _: None)
    _names: dict[str, str] = field(default_factory=dict[str, str])
    _options: dict[Expression, str] = field(default_factory=dict[Expression, str])

    def render(self, expression: Expression) -> str:
        self._names = {name: f"r{i}_{_slug(name)}" for i, name in enumerate(self.rules)}
        used = regular.rules_in(expression, self.rules)
        lines = [self._line(self.start, expression)]
        lines += [
            self._line(self._names[name], rule) for name, rule in self.rules.items() if name in used
        ]
        written = 0
        while written < len(self._options):  # which grows as options are found inside options
            options, name = list(self._options.items())[written]
            lines.append(self._line(name, options))
            written += 1
        return sized("".join(lines))

    def _line(self, name: str, expression: Expression) -> str:
        if isinstance(expression, OneOf) and self.terminal(expression) is None:
            body = " | ".join(self._term(option) for option in expression.options)
        else:
            body = self._term(expression)
        return sized(f"{name} {self.define} {body}\n")

    def _term(self, expression: Expression) -> str:
        if (terminal := self.terminal(expression)) is not None:
            return terminal
        match expression:
            case Text(text=text):
                return self.text(text)
            case Chars(chars=chars):
                return self.chars(chars)
            case Rule(name=name):
                return self._names[name]
            case Seq(parts=parts):
                return sized(" ".join(self._term(part) for part in parts)) or '""'
            case OneOf():
                return self._options.setdefault(expression, f"p{len(self._options)}")
            case Repeat(item=item, most=most):
                if most == 0:
                    return '""'
                inner = self._term(item)
                if isinstance(item, Seq | Repeat | Text):
                    inner = f"({inner})"
                return inner + repeat_suffix(expression)
            case _:
                raise UntranslatableError(f"{expression.text_form()} is no grammar")


def _slug(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower())


# ── Characters ──────────────────────────────────────────────────────────────────────────────


def _ebnf_text(text: str) -> str:
    return '"' + "".join(f"\\{c}" if c in '\\"' else _printable(c) for c in text) + '"'


def _ebnf_chars(chars: str) -> str:
    members = regular.class_members(chars)
    if len(members) == 1:
        return _ebnf_text(members)
    return "[" + "".join(f"\\{c}" if c in "\\]^-[" else _printable(c) for c in members) + "]"


def _printable(char: str) -> str:
    """The character itself, escaped where a control or a separator could end a line."""
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _lark_text(text: str) -> str:
    return " ".join(_lark_chars(char) for char in text)


def _lark_chars(chars: str) -> str:
    return f"/{regular.render(Chars(chars), {}, slash=_LARK_SLASH)}/"


# ── Where to cut a recursive grammar into terminals ─────────────────────────────────────────


def _cuts(
    expression: Expression, rules: Mapping[str, Expression]
) -> Iterator[frozenset[Expression]]:
    """Ways to cut, coarse before fine. One part comes from the grammar's author: a rule that uses
    no rule is a terminal."""

    def is_terminal(part: Expression) -> bool:
        return not regular.uses_rules(part) and not _may_be_empty(part)

    def cut(part: Expression, *, coarse: bool) -> Iterator[Expression]:
        if isinstance(part, Rule):
            if part.name in plain:
                yield rules[part.name]
        elif isinstance(part, Text | Chars) or (coarse and is_terminal(part)):
            yield part
        else:
            for inner in regular.parts_of(part):
                yield from cut(inner, coarse=coarse)

    used = regular.rules_in(expression, rules)
    plain = {name for name in used if is_terminal(rules[name])}
    bodies = [expression, *(rules[name] for name in sorted(used - plain))]
    for coarse in (True, False):
        yield frozenset(t for body in bodies for t in cut(body, coarse=coarse))


def _grouped(expression: Expression, memo: dict[int, Expression]) -> Expression:
    """The same language, with what stands side by side and uses no rule put into one `Seq`."""
    found = memo.get(id(expression))
    if found is not None:
        return found
    result = expression
    match expression:
        case OneOf(options=options):
            result = OneOf(tuple(_grouped(o, memo) for o in options))
        case Repeat(item=item, least=least, most=most):
            result = Repeat(_grouped(item, memo), least, most)
        case Seq(parts=parts):
            flat: list[Expression] = []
            for part in parts:
                grouped = _grouped(part, memo)
                flat.extend(grouped.parts if isinstance(grouped, Seq) else (grouped,))
            runs = itertools.groupby(flat, key=regular.uses_rules)
            merged: list[Expression] = []
            for uses_rules, run in runs:
                members = tuple(run)
                together = Seq(members)
                if not uses_rules and len(members) > 1 and not _may_be_empty(together):
                    merged.append(together)
                else:
                    merged.extend(members)
            result = merged[0] if len(merged) == 1 else Seq(tuple(merged))
        case _:
            pass
    memo[id(expression)] = result
    return result


def _may_be_empty(expression: Expression) -> bool:
    """Whether the empty text is one of `expression`, which uses no rules."""
    match expression:
        case Seq(parts=parts):
            return all(_may_be_empty(part) for part in parts)
        case OneOf(options=options):
            return any(_may_be_empty(option) for option in options)
        case Repeat(item=item, least=least):
            return least == 0 or _may_be_empty(item)
        case _:
            assert isinstance(expression, Leaf)
            return expression.is_final(expression.first())


def _cuts_well(terminals: Iterable[Expression], rules: Mapping[str, Expression]) -> bool:
    """Whether, where a terminal could end, no character could both continue it (or another one)
    and start the next: then taking the longest is taking the only one."""
    machine = Machine(OneOf(tuple(terminals)), rules)
    starts = machine.next_chars(machine.start)
    seen = {machine.start}
    pending = [machine.start]
    while pending:
        state = pending.pop()
        onward = machine.next_chars(state)
        if starts is None or onward is None or len(seen) > _MAX_CUT_STATES:
            return False
        if machine.is_final(state) and onward & starts:
            return False
        for char in onward:
            following = machine.step(state, char)
            if following not in seen:
                seen.add(following)
                pending.append(following)
    return True
