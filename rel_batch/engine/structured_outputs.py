"""The one place that speaks vLLM's structured outputs: a constraint becomes its parameters.

    params = SamplingParams(structured_outputs=structured_outputs_for(constraint, "guidance"))

`compile_check` compiles a constraint with the run's tokenizer on the CPU, without an engine, so
that one which does not compile ends as a row's `constraint_rejected` and never as an engine's
death.

Surprising: vLLM changes the parameters that it validates, so each call makes new ones.
"""

# xgrammar, llguidance and vLLM are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

from rel_batch.constraints import Constraint
from rel_batch.constraints.dialects import UntranslatableError, render_ebnf, render_lark

if TYPE_CHECKING:
    from vllm.sampling_params import StructuredOutputsParams

Backend = Literal["guidance", "xgrammar"]


def structured_outputs_for(
    constraint: Constraint, backend: Backend
) -> StructuredOutputsParams | None:
    """vLLM's parameters for `constraint`; None where it admits everything.

    `backend` is the one that the engine was started with. Raises UntranslatableError.
    """
    from vllm.sampling_params import StructuredOutputsParams

    if constraint.expression is None:
        return None
    return StructuredOutputsParams(grammar=_grammar(constraint, backend))


def compile_check(constraint: Constraint, backend: Backend, tokenizer: Any) -> str | None:
    """Why `backend` cannot compile `constraint` for this tokenizer; None if it can.

    `tokenizer` is a fast Hugging Face tokenizer.
    """
    if constraint.expression is None:
        return None
    try:
        grammar = _grammar(constraint, backend)
    except UntranslatableError as error:
        return str(error)
    if backend == "guidance":
        import llguidance

        error = llguidance.LLMatcher(
            _llguidance_tokenizer(tokenizer), grammar, log_level=0
        ).get_error()
        return f"guidance: {error}" if error else None
    try:
        _xgrammar_compiler(tokenizer).compile_grammar(grammar)
    except (RuntimeError, ValueError) as error:
        return f"xgrammar: {error}"
    return None


def _grammar(constraint: Constraint, backend: Backend) -> str:
    return render_lark(constraint) if backend == "guidance" else render_ebnf(constraint)


@functools.lru_cache(maxsize=2)
def _llguidance_tokenizer(tokenizer: Any) -> Any:
    from llguidance.hf import from_tokenizer

    return from_tokenizer(tokenizer, len(tokenizer))


@functools.lru_cache(maxsize=2)
def _xgrammar_compiler(tokenizer: Any) -> Any:
    import xgrammar

    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer))
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
