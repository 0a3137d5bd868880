"""One table for the whole ladder: each kind of each task, and what every reader says of a text.

The readers are `Constraint.matches`, our token masks, both backends' grammars, and, where the kind
has them, their JSON modes and regular expressions. A thought is no part of any constraint: a reply
that begins with one is refused by all.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import llguidance
import pytest
import readers

from rel_batch import read_instances
from rel_batch.constraints import JSON_KINDS, Constraint, Kind
from rel_batch.constraints.dialects import is_grammar, is_recursive
from rel_batch.constraints.encoding import decode, encode
from rel_batch.constraints.token_masks import MaskCache, TokenMasks, TokenReader
from rel_batch.constraints.vocabulary import token_bytes, token_trie
from rel_batch.records import Instance
from rel_batch.tasks import TASKS, task_for

MOLECULES = ["CCO", "COC"]
TEXT_KINDS: tuple[Kind, ...] = ("format", "regex")
SMILES_KINDS: tuple[Kind, ...] = ("format", "regex", "syntax", "molecule")
SETS: tuple[Kind, ...] = ("set", "ascending")
JSON_SETS: tuple[Kind, ...] = ("json_set", "json_ascending")


# Small questions: the bundled instances of these tasks, with other answers.
ANSWERS: dict[str, dict[str, object]] = {
    "REL-B1": {"label": "yes", "taxa": ["18", "1"]},
    "REL-C2": {"smiles": "CO", "molecules": MOLECULES},
    "REL-C3": {"missing_smiles": ["CO"], "molecules": MOLECULES},
    "REL-C4": {"selected_motifs": {"0": "CO", "1": "CO"}, "molecules": MOLECULES},
}
ALIGNMENT = ">18\nACGT\n>28\nACGA\n>1\nACGC\n"


@functools.cache
def instance(task: str) -> Instance:
    bundled = next(i for i in read_instances("bundled") if i.task == task)
    question = ALIGNMENT if task == "REL-B1" else bundled.question
    return replace(bundled, question=question, answer=ANSWERS.get(task, bundled.answer))


WHOLE, PREFIX, DEAD = "whole", "prefix", "dead"
# What a reader says of a text under each of these kinds.
TABLE: list[tuple[str, tuple[Kind, ...], str, readers.Reading]] = [
    ("REL-B1", TEXT_KINDS + SETS, "No", WHOLE),
    ("REL-B1", TEXT_KINDS + SETS, "Yes: 1", WHOLE),
    ("REL-B1", TEXT_KINDS + SETS, "Yes: 18, 1", WHOLE),
    ("REL-B1", TEXT_KINDS + SETS, "Yes: 18, ", PREFIX),
    ("REL-B1", TEXT_KINDS + SETS, "Yes", PREFIX),
    ("REL-B1", TEXT_KINDS + SETS, "Yes: 2", PREFIX),
    ("REL-B1", TEXT_KINDS + SETS, "Yes: 3", DEAD),
    ("REL-B1", TEXT_KINDS + SETS, "Yes:18", DEAD),
    ("REL-B1", TEXT_KINDS + SETS, "No.", DEAD),
    ("REL-B1", TEXT_KINDS + SETS, "<think>18?</think>\n\nYes: 18", DEAD),
    ("REL-B1", TEXT_KINDS, "Yes: 18, 18", WHOLE),
    ("REL-B1", SETS, "Yes: 18, 18", DEAD),
    # 1 is both a name and the beginning of another one.
    ("REL-B1", ("set",), "Yes: 1, 18", WHOLE),
    ("REL-B1", ("set",), "Yes: 1, 1", PREFIX),
    ("REL-B1", ("ascending",), "Yes: 1, 1", DEAD),
    ("REL-B1", ("ascending",), "Yes: 28, 18", DEAD),
    ("REL-B1", ("json", *JSON_SETS), '{"homoplasy":false,"taxa":[]}', WHOLE),
    ("REL-B1", ("json", *JSON_SETS), '{"homoplasy":true,"taxa":["18","1"]}', WHOLE),
    ("REL-B1", ("json", *JSON_SETS), '{"homoplasy":true,"taxa":["18"', PREFIX),
    ("REL-B1", ("json", *JSON_SETS), '{"homoplasy":true,"taxa":[]}', DEAD),
    ("REL-B1", ("json", *JSON_SETS), '{"homoplasy": true', DEAD),
    ("REL-B1", ("json",), '{"homoplasy":true,"taxa":["18","18"]}', WHOLE),
    ("REL-B1", JSON_SETS, '{"homoplasy":true,"taxa":["18","18"]}', DEAD),
    ("REL-B1", ("json_set",), '{"homoplasy":true,"taxa":["1","28"]}', WHOLE),
    ("REL-B1", ("json_ascending",), '{"homoplasy":true,"taxa":["1","28"]}', DEAD),
    *(
        row
        for task in ("REL-A1", "REL-A2", "REL-A3", "REL-A4")
        for row in (
            (task, TEXT_KINDS, "7", WHOLE),
            (task, TEXT_KINDS, "", PREFIX),
            (task, TEXT_KINDS, "8", DEAD),
            (task, TEXT_KINDS, "Answer 3", DEAD),
            (task, ("json",), '{"answer":7}', WHOLE),
            (task, ("json",), '{"answer":', PREFIX),
            (task, ("json",), '{"answer":8', DEAD),
        )
    ),
    ("REL-C1", TEXT_KINDS, "<No>", WHOLE),
    ("REL-C1", TEXT_KINDS, "<N", PREFIX),
    ("REL-C1", TEXT_KINDS, "No", DEAD),
    ("REL-C1", TEXT_KINDS, "<think>hm</think><No>", DEAD),
    ("REL-C1", ("json",), '{"answer":"No"}', WHOLE),
    ("REL-C1", ("json",), '{"answer":"no"', DEAD),
    ("REL-C2", SMILES_KINDS, "<smiles>c1ccccc1O</smiles>", WHOLE),
    ("REL-C2", SMILES_KINDS, "<smiles>C(", PREFIX),
    ("REL-C2", SMILES_KINDS, "<smiles></smiles>", DEAD),
    ("REL-C2", SMILES_KINDS, "<smiles>C</smiles>\n<", DEAD),
    ("REL-C2", TEXT_KINDS, "<smiles>C)(</smiles>", WHOLE),
    ("REL-C2", ("syntax", "molecule"), "<smiles>C)", DEAD),
    ("REL-C2", ("syntax",), "<smiles>C(C)(C)(C)(C)C</smiles>", WHOLE),
    ("REL-C2", ("molecule",), "<smiles>C(C)(C)(C)(C)C</smiles>", DEAD),
    ("REL-C2", ("json",), '{"smiles":"CO"}', WHOLE),
    ("REL-C2", ("json",), '{"smiles":""', DEAD),
    ("REL-C3", SMILES_KINDS, "<smiles>CO</smiles>\n<smiles>CCO</smiles>", WHOLE),
    ("REL-C3", SMILES_KINDS, "<smiles>CO</smiles>\n", PREFIX),
    ("REL-C3", SMILES_KINDS, "<smiles>CO</smiles>\n\n", DEAD),
    ("REL-C3", ("json",), '{"smiles":["CO","C"]}', WHOLE),
    ("REL-C3", ("json",), '{"smiles":[]', DEAD),
    ("REL-C4", SMILES_KINDS, "<indices>0,1</indices>\n<motif_0>CO</motif_0>", PREFIX),
    ("REL-C4", SMILES_KINDS, "<indices>0,1</indices>\n<motif_1>", DEAD),
    ("REL-C4", ("json",), '{"indices":[0,1],"motifs":["CO","CO"]}', WHOLE),
    ("REL-C4", ("json",), '{"indices":[0,1],"motifs":["CO"]', DEAD),
]


@functools.cache
def constraint(task: str, kind: Kind) -> Constraint:
    return task_for(task).constraint(instance(task), kind)


@functools.cache
def _masks(encoded: str) -> TokenMasks:
    tokens = token_bytes(readers.bytes_only())
    trie = token_trie(tokens, len(readers.bytes_only()))
    return TokenMasks(decode(encoded), tokens, trie, MaskCache())


def token_masks(constraint: Constraint, text: str) -> readers.Reading:
    """What the engine's process makes of it, after the way there."""
    eos = readers.bytes_only().eos_token_id
    reader = TokenReader(_masks(encode(constraint)), frozenset({eos}))
    for token_id in readers.bytes_only().encode(text, add_special_tokens=False):
        if not reader.accept(token_id):
            return "dead"
    return "whole" if reader.accept(eos) else "prefix"


def xgrammar_json(constraint: Constraint, text: str) -> readers.Reading:
    assert constraint.schema is not None
    return readers.read_xgrammar(readers.compiled("json", constraint.schema), text)


def guidance_json(constraint: Constraint, text: str) -> readers.Reading:
    assert constraint.schema is not None
    grammar = llguidance.LLMatcher.grammar_from_json_schema(
        constraint.schema, defaults={"whitespace_flexible": False}
    )
    return readers.read_llguidance(grammar, text)


def readers_of(constraint: Constraint) -> Iterator[tuple[str, readers.Reader]]:
    yield "matches", readers.machine
    yield "token masks", token_masks
    if is_grammar(constraint):
        yield from readers.GRAMMAR_READERS.items()
        if not is_recursive(constraint) and constraint.kind not in JSON_KINDS:
            yield from readers.REGEX_READERS.items()
    if constraint.kind == "json":
        yield "xgrammar json", xgrammar_json
        yield "guidance json", guidance_json


@pytest.mark.parametrize("task", sorted(TASKS))
def test_all_readers_agree_with_the_table(task: str) -> None:
    for _, kinds, text, expected in (row for row in TABLE if row[0] == task):
        for kind in kinds:
            for name, read in readers_of(constraint(task, kind)):
                assert read(constraint(task, kind), text) == expected, (kind, name, text)


def test_the_table_has_every_kind_of_every_task() -> None:
    named = {(task, kind) for task, kinds, _, _ in TABLE for kind in kinds}
    # The chemical rungs that need more of an instance have tests of their own.
    own = {"none", "formula"}
    assert named == {
        (task, kind)
        for task in TASKS
        for kind in task_for(task).constraint_kinds
        if kind not in own
    }


@pytest.mark.parametrize("task", sorted(TASKS))
def test_all_readers_agree_on_every_beginning_of_the_reference_reply(task: str) -> None:
    for kind in task_for(task).constraint_kinds:
        if kind in ("none", "formula"):
            continue
        reply = task_for(task).reference_reply_for(instance(task), kind)
        for text in (*(reply[:end] for end in range(len(reply) + 1)), reply + " ", " " + reply):
            said = {
                n: read(constraint(task, kind), text)
                for n, read in readers_of(constraint(task, kind))
            }
            assert len(set(said.values())) == 1, (kind, text, said)
            assert said["matches"] == WHOLE or text != reply
