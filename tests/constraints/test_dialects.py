"""All backends read a constraint as `Constraint.matches` does."""

from __future__ import annotations

import pytest
import readers
from cases import CASES, Case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rel_batch.constraints import (
    Chars,
    Constraint,
    Expression,
    OneOf,
    Repeat,
    Rule,
    Seq,
    Text,
    separated,
    texts,
)
from rel_batch.constraints.dialects import (
    UntranslatableError,
    is_recursive,
    render_ebnf,
    render_lark,
    render_regex,
)
from rel_batch.constraints.smiles_grammar import SMILES, SMILES_RULES

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_name
@pytest.mark.parametrize("name", ["matches", *readers.GRAMMAR_READERS])
def test_a_reader_agrees_with_the_table(case: Case, name: str) -> None:
    read = readers.GRAMMAR_READERS.get(name, readers.machine)
    table = [(text, "whole") for text in case.whole]
    table += [(text, "prefix") for text in case.prefix]
    table += [(text, "dead") for text in case.dead]
    assert [(text, read(case.constraint, text)) for text, _ in table] == table


@by_name
@pytest.mark.parametrize("name", readers.REGEX_READERS)
def test_the_regular_expression_agrees_where_there_is_one(case: Case, name: str) -> None:
    if is_recursive(case.constraint):
        with pytest.raises(UntranslatableError, match="recursive"):
            render_regex(case.constraint)
        return
    read = readers.REGEX_READERS[name]
    for text in (*case.whole, *case.prefix, *case.dead):
        assert read(case.constraint, text) == readers.machine(case.constraint, text), text
        assert readers.python_regex(case.constraint, text) == case.constraint.matches(text), text


# A small alphabet makes ambiguous and overlapping expressions likely.
_leaves = st.one_of(
    st.text("ab/\\]", min_size=1, max_size=3).map(Text),
    st.text("ab^-\n", min_size=1, max_size=3).map(Chars),
)


def _composed(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    parts = st.lists(inner, min_size=1, max_size=3).map(tuple)
    counts = st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 2, None]))
    return st.one_of(
        parts.map(Seq),
        parts.map(OneOf),
        st.tuples(inner, counts).map(
            lambda t: Repeat(t[0], t[1][0], None if t[1][1] is None else t[1][0] + t[1][1])
        ),
    )


_expressions: st.SearchStrategy[Expression] = st.recursive(_leaves, _composed, max_leaves=6)
_texts = st.text("ab/\\]^-\n", max_size=8)


def _recursive(body: Expression, other: Expression) -> Constraint:
    rule = OneOf((body, Seq((Text("("), Rule("r"), Text(")"), other))))
    return Constraint("syntax", Rule("r"), (("r", rule),))


_constraints = st.one_of(
    _expressions.map(lambda e: Constraint("format", e)),
    st.tuples(_expressions, _expressions).map(lambda pair: _recursive(*pair)),
)
thorough = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(_constraints, st.lists(st.text("ab/\\]^-\n()", max_size=8), max_size=5))
def test_backends_agree_on_any_expression(constraint: Constraint, sample: list[str]) -> None:
    for text in sample:
        expected = readers.machine(constraint, text)
        for name, read in readers.GRAMMAR_READERS.items():
            assert read(constraint, text) == expected, (name, text)


@thorough
@given(_expressions, st.lists(_texts, max_size=5))
def test_regular_expressions_agree_on_any_expression(
    expression: Expression, sample: list[str]
) -> None:
    constraint = Constraint("regex", expression)
    for text in sample:
        expected = readers.machine(constraint, text)
        for name, read in readers.REGEX_READERS.items():
            assert read(constraint, text) == expected, (name, text)
        assert readers.python_regex(constraint, text) == (expected == "whole")


def test_the_notations_are_stable() -> None:
    constraint = Constraint(
        "syntax", Seq((Text("<smiles>"), SMILES, Text("</smiles>"))), SMILES_RULES
    )
    assert render_lark(constraint).splitlines()[:5] == [
        "start : /<smiles>/ r0_chain /<\\/smiles>/",
        "r0_chain : r1_branched_atom (p0? r1_branched_atom)*",
        "r1_branched_atom : r3_atom (r4_bond? r5_ring_number)* r2_branch*",
        "r2_branch : /\\(/ p0? r0_chain /\\)/",
        render_lark(constraint).splitlines()[4],
    ]
    assert render_ebnf(constraint).startswith('root ::= "<smiles>" r0_chain "</smiles>"\n')


def test_a_list_writes_its_names_once_in_ebnf() -> None:
    names = tuple(f"taxon_{i}" for i in range(100))
    grammar = render_ebnf(Constraint("format", separated(texts(names), ", ", 1, 100)))
    assert grammar.count('"taxon_7"') == 1


def test_what_admits_everything_has_no_translation() -> None:
    for render in (render_ebnf, render_lark, render_regex):
        with pytest.raises(UntranslatableError, match="admits every text"):
            render(Constraint("none"))


def test_a_grammar_that_is_too_large_is_refused_with_a_reason() -> None:
    names = tuple(f"{i:02d}" + "x" * 100_000 for i in range(100))  # 10 MB
    for render in (render_ebnf, render_lark, render_regex):
        with pytest.raises(UntranslatableError, match="more than 2,000,000 characters"):
            render(Constraint("format", texts(names)))


def test_an_expression_that_doubles_at_each_level_is_refused_early() -> None:
    expression: Expression = Text("ab")
    for _ in range(60):
        expression = Seq((expression, expression))
    for render in (render_ebnf, render_lark, render_regex):
        with pytest.raises(UntranslatableError, match="more than"):
            render(Constraint("format", expression))


def test_a_repeat_without_reason_is_refused() -> None:
    with pytest.raises(UntranslatableError, match="more than 100,000 times"):
        render_regex(Constraint("format", Repeat(Text("a"), 0, 10**9)))
