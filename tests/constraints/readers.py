"""Each decoding backend as a reader of texts, so that all can be asked the same question.

A reader says of a text "whole" (admitted), "prefix" (some admitted text starts with it) or "dead".
The text is given token by token, as the engine would, with the tokenizer's own encoding.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import llguidance
import xgrammar
from llguidance.hf import from_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rel_batch.constraints import Constraint
from rel_batch.constraints.dialects import render_ebnf, render_lark, render_regex

Reading = Literal["whole", "prefix", "dead"]
Reader = Callable[[Constraint, str], Reading]


def byte_level_tokenizer(vocabulary: int, corpus: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """A byte-level BPE; with 259 entries it has one token a byte and three special ones."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(list(corpus), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


@functools.cache
def bytes_only() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer(259)


@functools.cache
def _xgrammar_compiler() -> xgrammar.GrammarCompiler:
    info = xgrammar.TokenizerInfo.from_huggingface(bytes_only(), vocab_size=len(bytes_only()))
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


@functools.cache
def _llguidance_tokenizer() -> Any:
    return from_tokenizer(bytes_only(), len(bytes_only()))


@functools.lru_cache(maxsize=64)
def compiled(how: str, text: str) -> xgrammar.CompiledGrammar:
    compiler = _xgrammar_compiler()
    if how == "ebnf":
        return compiler.compile_grammar(text)
    if how == "regex":
        return compiler.compile_regex(text)
    return compiler.compile_json_schema(text, any_whitespace=False, separators=(",", ":"))


def read_xgrammar(compiled: xgrammar.CompiledGrammar, text: str) -> Reading:
    matcher = xgrammar.GrammarMatcher(compiled)
    for token in bytes_only().encode(text, add_special_tokens=False):
        if not matcher.accept_token(token):
            return "dead"
    return "whole" if matcher.accept_token(bytes_only().eos_token_id) else "prefix"


def read_llguidance(grammar: str, text: str) -> Reading:
    matcher = llguidance.LLMatcher(_llguidance_tokenizer(), grammar, log_level=0)
    assert not matcher.get_error(), matcher.get_error()
    for token in bytes_only().encode(text, add_special_tokens=False):
        # A stopped matcher takes nothing but the end.
        if matcher.is_stopped() or not matcher.consume_token(token):
            return "dead"
    return "whole" if matcher.is_accepting() else "prefix"


def machine(constraint: Constraint, text: str) -> Reading:
    if constraint.matches(text):
        return "whole"
    return "prefix" if constraint.admits_prefix(text) else "dead"


def xgrammar_ebnf(constraint: Constraint, text: str) -> Reading:
    return read_xgrammar(compiled("ebnf", render_ebnf(constraint)), text)


def xgrammar_regex(constraint: Constraint, text: str) -> Reading:
    return read_xgrammar(compiled("regex", render_regex(constraint)), text)


def guidance_lark(constraint: Constraint, text: str) -> Reading:
    return read_llguidance(render_lark(constraint), text)


def guidance_regex(constraint: Constraint, text: str) -> Reading:
    grammar = llguidance.LLMatcher.grammar_from_regex(render_regex(constraint))
    return read_llguidance(grammar, text)


def python_regex(constraint: Constraint, text: str) -> bool:
    return re.fullmatch(render_regex(constraint), text) is not None


GRAMMAR_READERS: dict[str, Reader] = {"xgrammar": xgrammar_ebnf, "guidance": guidance_lark}
REGEX_READERS: dict[str, Reader] = {
    "xgrammar regex": xgrammar_regex,
    "guidance regex": guidance_regex,
}
