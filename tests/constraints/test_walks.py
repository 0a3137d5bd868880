"""Random walks over the masks: whatever a matcher lets a model write, its constraint admits."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llguidance
import llguidance.numpy
import numpy as np
import pytest
import readers
import torch
import xgrammar
from llguidance.hf import from_tokenizer
from transformers import AutoTokenizer

from rel_batch import constraint_for, read_instances
from rel_batch.constraints import Constraint, Kind
from rel_batch.constraints.dialects import is_grammar, render_ebnf, render_lark
from rel_batch.constraints.token_masks import MaskCache, TokenMasks, TokenReader
from rel_batch.constraints.vocabulary import token_bytes, token_trie
from rel_batch.tasks import task_for

INSTANCES = list({i.task: i for i in read_instances("bundled")}.values())
CASES: list[tuple[Any, Kind]] = [
    (i, kind)
    for i in INSTANCES
    for kind in task_for(i.task).constraint_kinds
    if kind not in ("none", "formula")
]
STEPS = 40
# Reads the mask of the next step, and takes a token.
Walk = tuple[Callable[[torch.Tensor], None], Callable[[int], bool]]


class Vocabulary:
    """One tokenizer with what each matcher makes of it."""

    def __init__(self, tokenizer: Any, *, walks: int) -> None:
        self.tokenizer = tokenizer
        self.walks = walks
        size = len(tokenizer)
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=size)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.llg = from_tokenizer(tokenizer, size)
        self.tokens = token_bytes(tokenizer)
        self.trie = token_trie(self.tokens, size)
        self.bitmask = xgrammar.allocate_token_bitmask(1, size)

    def start(self, constraint: Constraint) -> dict[str, Callable[[], Walk]]:
        """What begins a walk, for each matcher that can decode the constraint."""
        started: dict[str, Callable[[], Walk]] = {}
        if len(self.tokens) < 10_000 or constraint.kind not in ("format", "regex", "json"):
            masks = TokenMasks(constraint, self.tokens, self.trie, MaskCache())
            started["machine"] = lambda: self._machine(masks)
        if is_grammar(constraint):
            compiled = self.compiler.compile_grammar(render_ebnf(constraint))
            lark = render_lark(constraint)
            started["xgrammar"] = lambda: self._xgrammar(compiled)
            started["guidance"] = lambda: self._guidance(lark)
        return started

    def _machine(self, masks: TokenMasks) -> Walk:
        reader = TokenReader(masks, frozenset({self.tokenizer.eos_token_id}))
        return lambda mask: reader.fill(mask[0].numpy(), None), reader.accept

    def _xgrammar(self, compiled: xgrammar.CompiledGrammar) -> Walk:
        matcher = xgrammar.GrammarMatcher(compiled)
        return lambda mask: matcher.fill_next_token_bitmask(mask, 0), matcher.accept_token

    def _guidance(self, lark: str) -> Walk:
        matcher = llguidance.LLMatcher(self.llg, lark, log_level=0)
        fill = llguidance.numpy.fill_next_token_bitmask
        return lambda mask: fill(matcher, mask.numpy(), 0), matcher.consume_token


@pytest.fixture(scope="module")
def bytes_alone() -> Vocabulary:
    return Vocabulary(readers.bytes_only(), walks=3)


@pytest.fixture(scope="module")
def tiny(tiny_llama: Path) -> Vocabulary:
    return Vocabulary(AutoTokenizer.from_pretrained(tiny_llama), walks=3)


@pytest.fixture(scope="module")
def large(demo_checkpoint: Path) -> Vocabulary:
    return Vocabulary(AutoTokenizer.from_pretrained(demo_checkpoint), walks=1)


@pytest.mark.parametrize("vocabulary", ["bytes_alone", "tiny", "large"])
@pytest.mark.parametrize(
    ("instance", "kind"), CASES, ids=lambda value: getattr(value, "task", value)
)
def test_what_the_masks_let_through_is_admitted(
    instance: Any, kind: Kind, vocabulary: str, request: pytest.FixtureRequest
) -> None:
    words: Vocabulary = request.getfixturevalue(vocabulary)
    constraint = constraint_for(instance, kind)
    eos = words.tokenizer.eos_token_id
    for name, start in words.start(constraint).items():
        rng = random.Random(3)
        for _ in range(words.walks):
            fill, accept = start()
            text, ended = b"", False
            for _ in range(STEPS):
                fill(words.bitmask)
                row = words.bitmask[0].numpy().view(np.uint8)
                allowed = np.flatnonzero(np.unpackbits(row, bitorder="little"))
                assert len(allowed), (name, text)
                token_id = int(rng.choice(allowed))
                assert accept(token_id), (name, text, token_id)
                if token_id == eos:
                    ended = True
                    break
                text += words.tokens[token_id] or b""
            written = text.decode(errors="ignore")  # a walk may stop inside a character
            held = constraint.matches(written) if ended else constraint.admits_prefix(written)
            assert held, (name, written)
