"""The one place that speaks vLLM's structured outputs: a constraint becomes its parameters.

    params = SamplingParams(structured_outputs=structured_outputs_for(constraint, "guidance"))

A run names its backend: `guidance` or `xgrammar`, which the engine is then started with, or
`default`, which takes for each constraint the one that measured best (`benchmarks/`), both in one
engine. What is no grammar goes to our own matcher, whatever the backend, and so does a grammar of
so much text that a backend would take long to compile it. `compile_check` compiles a constraint
with the run's tokenizer on the CPU, without an engine, so that one which does not compile ends as
a row's `constraint_rejected` and never as an engine's death.

Surprising: vLLM changes the parameters that it validates, so each call makes new ones. Guidance is
always reached through our plugin, also where it is the engine's own backend: vLLM only logs what
guidance refuses or gives up, and ends such a reply as if it were whole.
"""

# xgrammar, llguidance and vLLM are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rel_batch.config import Backend
from rel_batch.constraints import Constraint, Nothing
from rel_batch.constraints.dialects import (
    UntranslatableError,
    is_grammar,
    is_long,
    render_ebnf,
    render_lark,
    render_regex,
)
from rel_batch.constraints.encoding import encode
from rel_batch.constraints.regular import sized
from rel_batch.constraints.vocabulary import VocabularyError, token_bytes
from rel_batch.engine.grammar_spec import Carrier, write_spec
from rel_batch.records import Compiled

if TYPE_CHECKING:
    from vllm.sampling_params import StructuredOutputsParams

# What masks the tokens in the end: one of vLLM's backends, or our own machine.
Matcher = Literal["guidance", "xgrammar", "machine"]

_XGRAMMAR_CACHE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint in one backend's words; `type` is vLLM's name for the notation."""

    type: Literal["GRAMMAR", "REGEX", "JSON"]
    text: str


def carrier_of(backend: Backend) -> Carrier:
    """The backend that the engine itself is started with."""
    return "xgrammar" if backend == "default" else backend


def matcher_of(constraint: Constraint, backend: Backend) -> Matcher:
    """What masks the tokens for `constraint` in a run with `backend`."""
    if not is_grammar(constraint) or is_long(constraint):
        return "machine"
    if backend != "default":
        return backend
    # Measured with 262,144 tokens (docs/constraints.md): SMILES grammars and bounded strings cost
    # xgrammar up to 1 and 180 ms a step, guidance 0.3 and 1; all else costs xgrammar 10 us and
    # guidance 50.
    has_strings = constraint.schema is not None and '"pattern"' in constraint.schema
    return "guidance" if constraint.rules or has_strings else "xgrammar"


def structured_outputs_for(
    constraint: Constraint, backend: Backend
) -> StructuredOutputsParams | None:
    """vLLM's parameters for `constraint`; None where it admits everything.

    The engine has to be started with `carrier_of(backend)` and with our plugin. Raises
    UntranslatableError.
    """
    from vllm.sampling_params import StructuredOutputsParams

    if constraint.expression is None:
        return None
    carrier = carrier_of(backend)
    matcher = matcher_of(constraint, backend)
    if matcher == "machine":
        payload = {"backend": "machine", "constraint": sized(encode(constraint))}
        return StructuredOutputsParams(grammar=write_spec(payload, carrier))
    grammar = grammar_of(constraint, matcher)
    if matcher == "guidance":
        payload = {"backend": matcher, "type": grammar.type, "text": grammar.text}
        return StructuredOutputsParams(grammar=write_spec(payload, carrier))
    match grammar.type:
        case "JSON":
            return StructuredOutputsParams(json=grammar.text)
        case "REGEX":
            return StructuredOutputsParams(regex=grammar.text)
        case "GRAMMAR":
            return StructuredOutputsParams(grammar=grammar.text)


def compile_check(constraint: Constraint, backend: Backend, tokenizer: Any) -> str | None:
    """Why `constraint` cannot be decoded with `backend` and this tokenizer; None if it can.

    `tokenizer` is a fast Hugging Face tokenizer.
    """
    if constraint.expression is None:
        return None
    if isinstance(constraint.expression, Nothing):
        return constraint.expression.reason
    matcher = matcher_of(constraint, backend)
    try:
        if matcher == "machine":
            sized(encode(constraint))
            return _vocabulary_problem(tokenizer)
        grammar = grammar_of(constraint, matcher)
    except UntranslatableError as error:
        return str(error)
    problem = (
        _guidance_problem(grammar, tokenizer)
        if matcher == "guidance"
        else _xgrammar_problem(grammar, tokenizer)
    )
    return f"{matcher}: {problem}" if problem else None


class ConstraintCompiler:
    """Says how constraints compile for one backend and tokenizer; of equal ones, once."""

    def __init__(self, backend: Backend, tokenizer: Any) -> None:
        self._backend: Backend = backend
        self._tokenizer = tokenizer
        self._ready: set[Matcher] = set()
        self._compiled: dict[str, Compiled] = {}

    def __call__(self, constraint: Constraint) -> Compiled | None:
        """How `constraint` compiles; None where there is nothing to compile."""
        if constraint.expression is None:
            return None
        if constraint.digest not in self._compiled:
            self._compiled[constraint.digest] = self._compile(constraint)
        return self._compiled[constraint.digest]

    def _compile(self, constraint: Constraint) -> Compiled:
        matcher = matcher_of(constraint, self._backend)
        if matcher not in self._ready:
            # The first of its kind also reads the vocabulary, which is no cost of the constraint.
            self._ready.add(matcher)
            compile_check(constraint, self._backend, self._tokenizer)
        started = time.perf_counter()
        problem = compile_check(constraint, self._backend, self._tokenizer)
        return Compiled(matcher, time.perf_counter() - started, problem)


def grammar_of(constraint: Constraint, matcher: Carrier) -> Grammar:
    """The constraint in the words of one of vLLM's backends. Raises UntranslatableError."""
    if constraint.schema is not None and constraint.kind == "json":
        return Grammar("JSON", sized(constraint.schema))
    if constraint.kind == "regex":
        return Grammar("REGEX", render_regex(constraint))
    render = render_lark if matcher == "guidance" else render_ebnf
    return Grammar("GRAMMAR", render(constraint))


def _guidance_problem(grammar: Grammar, tokenizer: Any) -> str | None:
    from llguidance import LLMatcher

    text = grammar.text
    try:
        if grammar.type == "JSON":
            text = LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_flexible": False})
        elif grammar.type == "REGEX":
            text = LLMatcher.grammar_from_regex(text)
        return LLMatcher(_llguidance_tokenizer(tokenizer), text, log_level=0).get_error() or None
    except ValueError as error:
        return str(error)


def _xgrammar_problem(grammar: Grammar, tokenizer: Any) -> str | None:
    compiler = _xgrammar_compiler(tokenizer)
    try:
        if grammar.type == "JSON":
            compiler.compile_json_schema(grammar.text, any_whitespace=False, separators=(",", ":"))
        elif grammar.type == "REGEX":
            compiler.compile_regex(grammar.text)
        else:
            compiler.compile_grammar(grammar.text)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


@functools.lru_cache(maxsize=2)
def _vocabulary_problem(tokenizer: Any) -> str | None:
    try:
        token_bytes(tokenizer)
    except VocabularyError as error:
        return str(error)
    return None


@functools.lru_cache(maxsize=2)
def _llguidance_tokenizer(tokenizer: Any) -> Any:
    from llguidance.hf import from_tokenizer

    return from_tokenizer(tokenizer, len(tokenizer))


@functools.lru_cache(maxsize=2)
def _xgrammar_compiler(tokenizer: Any) -> Any:
    import xgrammar

    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer))
    # With a cache, as vLLM has one: there are schemas that xgrammar 0.2.8 compiles only without.
    return xgrammar.GrammarCompiler(
        info, max_threads=1, cache_enabled=True, cache_limit_bytes=_XGRAMMAR_CACHE_BYTES
    )
