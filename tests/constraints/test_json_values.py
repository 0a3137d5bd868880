"""JSON of a bounded shape: the schema and the expression are the same texts, in every JSON mode."""

from __future__ import annotations

import json

import llguidance
import pytest
import readers
from cases import HOSTILE_NAMES

from rel_batch.constraints import Constraint
from rel_batch.constraints.json_values import (
    json_array,
    json_either,
    json_enum,
    json_integer,
    json_object,
    json_string,
    json_subset,
)

# The JSON modes write U+007F in ways of their own.
NAMES = tuple(name for name in HOSTILE_NAMES if "\x7f" not in name)


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


CHOICE = json_object(answer=json_integer(0, 7)).constraint("json")
TAXA = json_either(
    json_object(homoplasy=json_enum(False), taxa=json_array(json_enum(*NAMES), 0, 0)),
    json_object(homoplasy=json_enum(True), taxa=json_array(json_enum(*NAMES), 1, 3)),
).constraint("json")
MOLECULE = json_object(smiles=json_string("CNOclnBr[]()=#@+-/^&~%012", 1, 9)).constraint("json")
LINES = json_object(
    indices=json_array(json_integer(0, 2), 0, 3), on=json_enum("a", 'b"c')
).constraint("json")

TABLE: list[tuple[Constraint, str, str]] = [
    (CHOICE, '{"answer":3}', "whole"),
    (CHOICE, '{"answer"', "prefix"),
    (CHOICE, '{"answer": 3}', "dead"),
    (CHOICE, '{"answer":3} ', "dead"),
    (CHOICE, '{"answer":8}', "dead"),
    (CHOICE, '{"answer":3.0}', "dead"),
    (CHOICE, '{"answer":"3"}', "dead"),
    (CHOICE, ' {"answer":3}', "dead"),
    (TAXA, compact({"homoplasy": False, "taxa": []}), "whole"),
    (TAXA, compact({"homoplasy": True, "taxa": ["a", "a", "a b"]}), "whole"),
    (TAXA, compact({"homoplasy": True, "taxa": []}), "dead"),
    (TAXA, compact({"homoplasy": False, "taxa": ["a"]}), "dead"),
    (TAXA, compact({"homoplasy": True, "taxa": ["a"] * 4}), "dead"),
    (TAXA, compact({"taxa": ["a"], "homoplasy": True}), "dead"),
    (TAXA, '{"homoplasy":false, "taxa":[]}', "dead"),
    (TAXA, '{"homoplasy":true,"taxa":["a", "a"]}', "dead"),
    *((TAXA, compact({"homoplasy": True, "taxa": [name]}), "whole") for name in NAMES),
    (MOLECULE, '{"smiles":"[C-](#N)/"}', "whole"),
    (MOLECULE, '{"smiles":"C&&~^-]["}', "whole"),
    (MOLECULE, '{"smiles":"CCCCCCCCC"}', "whole"),
    (MOLECULE, '{"smiles":"CCCCCCCCCC"}', "dead"),
    (MOLECULE, '{"smiles":""}', "dead"),
    (MOLECULE, '{"smiles":"C\\\\C"}', "dead"),
    (MOLECULE, '{"smiles":"C C"}', "dead"),
    (MOLECULE, '{"smiles":"\\u0043"}', "dead"),
    (LINES, '{"indices":[],"on":"a"}', "whole"),
    (LINES, '{"indices":[0,1,2],"on":"b\\"c"}', "whole"),
    (LINES, '{"indices":[0,1,2,0],"on":"a"}', "dead"),
    (LINES, '{"indices":[0,1,],"on":"a"}', "dead"),
]


def xgrammar_json(constraint: Constraint, text: str) -> readers.Reading:
    assert constraint.schema is not None
    return readers.read_xgrammar(readers.compiled("json", constraint.schema), text)


def guidance_json(constraint: Constraint, text: str) -> readers.Reading:
    assert constraint.schema is not None
    grammar = llguidance.LLMatcher.grammar_from_json_schema(
        constraint.schema, defaults={"whitespace_flexible": False}
    )
    return readers.read_llguidance(grammar, text)


@pytest.mark.parametrize(
    "read",
    [readers.machine, xgrammar_json, guidance_json, *readers.GRAMMAR_READERS.values()],
    ids=["matches", "xgrammar json", "guidance json", "xgrammar", "guidance"],
)
def test_every_reader_agrees_with_the_table(read: readers.Reader) -> None:
    assert [(text, read(constraint, text)) for constraint, text, _ in TABLE] == [
        (text, expected) for _, text, expected in TABLE
    ]


def test_a_schema_admits_what_python_reads_back() -> None:
    for constraint, text, expected in TABLE:
        assert constraint.schema is not None
        json.loads(constraint.schema)
        if expected == "whole":
            assert compact(json.loads(text)) == text


def test_a_subset_in_json_names_nothing_twice() -> None:
    constraint = json_object(taxa=json_subset(NAMES, "any")).constraint("json_set")
    assert constraint.matches(compact({"taxa": list(reversed(NAMES))}))
    assert not constraint.matches(compact({"taxa": ["a", "a b", "a"]}))
    assert not constraint.matches(compact({"taxa": []}))


def test_strings_hold_only_characters_that_need_no_escape() -> None:
    for char in ('"', "\\", "\n", "\x00"):
        with pytest.raises(ValueError, match="escape"):
            json_string(f"a{char}", 1, 2)
