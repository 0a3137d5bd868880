"""Our grammar backend inside vLLM's engine core: constraints that are no grammar.

`install`, called by the plugin, wraps one method, `StructuredOutputManager._create_grammar`: the
one that turns a request into a grammar object. A request whose grammar is one of our specs
(`grammar_spec`) gets an object of ours, or one of the guidance backend, whatever the engine's own
backend is; every other request goes its usual way. All else is vLLM's: when the thought ends and
masking begins, the order of rows, speculative drafts, the model runner.

Surprising: a grammar object is given the request, not only its spec, because it has to know how
many tokens are left, and only the request knows how many a thought has used.
"""

# vLLM is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from typing import Any

from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.backend_guidance import GuidanceBackend, GuidanceGrammar
from vllm.v1.structured_output.backend_types import (
    StructuredOutputGrammar,
    StructuredOutputOptions,
)

from rel_batch.constraints.encoding import decode
from rel_batch.constraints.token_masks import MaskCache, TokenMasks, TokenReader, TokenTrie
from rel_batch.constraints.vocabulary import token_bytes, token_trie
from rel_batch.engine.grammar_spec import read_spec

# Compiled constraints kept; instances with the same names share one.
MAX_CONSTRAINTS = 32

_METHOD = "_create_grammar"
_ATTRIBUTE = "_rel_batch_compiler"
_logger = logging.getLogger(__name__)


def install() -> None:
    """Let the engine of this process compile our specs. Doing it again changes nothing.

    In a vLLM that has no such method nothing is changed and a warning is logged; a run then stops
    at its canary.
    """
    original = getattr(StructuredOutputManager, _METHOD, None)
    if original is None:
        _logger.warning("this vLLM has no StructuredOutputManager.%s to extend", _METHOD)
        return
    if getattr(original, _ATTRIBUTE, False):
        return

    def create_grammar(self: StructuredOutputManager, request: Any) -> Any:
        kind, grammar = request.structured_output_request.structured_output_key
        spec = read_spec(grammar) if kind == StructuredOutputOptions.GRAMMAR else None
        if spec is None:
            return original(self, request)
        with _lock:
            compiler = getattr(self, _ATTRIBUTE, None)
            if compiler is None:
                compiler = _Compiler(self.vllm_config, self.tokenizer)
                setattr(self, _ATTRIBUTE, compiler)
        try:
            return compiler.grammar_for(spec, request)
        except Exception:
            # vLLM ends this request, and this one only, with an error that says no more.
            _logger.exception("no grammar for request %s", request.request_id)
            raise

    setattr(create_grammar, _ATTRIBUTE, True)
    setattr(StructuredOutputManager, _METHOD, create_grammar)


_lock = threading.Lock()


class _Compiler:
    """What one engine keeps for our specs: the vocabulary, compiled constraints, their masks."""

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        self._vllm_config = vllm_config
        self._tokenizer = tokenizer
        self._num_rows: int = vllm_config.model_config.get_vocab_size()
        self._lock = threading.Lock()
        self._vocabulary: tuple[list[bytes | None], TokenTrie] | None = None
        self._cache = MaskCache()
        self._compiled: OrderedDict[str, TokenMasks] = OrderedDict()
        self._guidance: GuidanceBackend | None = None

    def grammar_for(self, spec: dict[str, Any], request: Any) -> StructuredOutputGrammar:
        params = request.sampling_params
        stop_token_ids = params.all_stop_token_ids or {self._tokenizer.eos_token_id}
        if spec["backend"] == "guidance":
            kind = StructuredOutputOptions[spec["type"]]
            return self._guidance_grammar(kind, spec["text"], stop_token_ids)
        if spec["backend"] != "machine":
            raise ValueError(f"no backend is called {spec['backend']!r}")
        masks = self._masks_of(spec["constraint"])
        num_tokens = min(
            request.max_tokens,
            self._vllm_config.model_config.max_model_len - request.num_prompt_tokens,
        )
        return MachineGrammar(TokenReader(masks, frozenset(stop_token_ids)), num_tokens, request)

    def _masks_of(self, encoded: str) -> TokenMasks:
        with self._lock:
            masks = self._compiled.get(encoded)
            if masks is None:
                if self._vocabulary is None:
                    tokens = token_bytes(self._tokenizer)
                    self._vocabulary = tokens, token_trie(tokens, self._num_rows)
                masks = TokenMasks(decode(encoded), *self._vocabulary, self._cache)
                self._compiled[encoded] = masks
            self._compiled.move_to_end(encoded)
            while len(self._compiled) > MAX_CONSTRAINTS:
                self._compiled.popitem(last=False)
            return masks

    def _guidance_grammar(
        self, kind: StructuredOutputOptions, text: str, stop_token_ids: set[int]
    ) -> StructuredOutputGrammar:
        with self._lock:
            if self._guidance is None:
                # An engine whose own backend is guidance has bit masks that are wide enough.
                is_own = self._vllm_config.structured_outputs_config.backend == "guidance"
                if not is_own and -(-len(self._tokenizer) // 32) > -(-self._num_rows // 32):
                    raise ValueError("guidance masks more tokens than the model has rows")
                self._guidance = GuidanceBackend(
                    self._vllm_config, tokenizer=self._tokenizer, vocab_size=self._num_rows
                )
            compiled: Any = self._guidance.compile_grammar(
                kind, text, stop_token_ids=stop_token_ids
            )
        if error := compiled.ll_matcher.get_error():
            raise ValueError(error)
        return CheckedGuidance(compiled.ll_matcher, compiled.ll_tokenizer, compiled.vocab_size)


class CheckedGuidance(GuidanceGrammar):
    """A grammar of guidance whose errors end the request, and do not pass for its end.

    A matcher in error (it may give up in the middle, when a step takes more work than its limits
    allow) admits nothing but the end, and vLLM only logs it: a list would be cut short without a
    word.
    """

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return super().accept_tokens(request_id, tokens) and not self.ll_matcher.is_error()


class MachineGrammar(StructuredOutputGrammar):
    """One request's way through a constraint that our own machine matches."""

    def __init__(self, reader: TokenReader, num_tokens: int, request: Any) -> None:
        self._reader = reader
        self._num_tokens = num_tokens
        self._request = weakref.ref(request)
        self._num_before = 0  # tokens of the thought, which no constraint sees

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        del request_id
        # As vLLM's own backends: what follows the end is not looked at.
        return all(self._reader.is_terminated or self._reader.accept(token) for token in tokens)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        before = self._reader.num_taken
        for token in tokens:
            if self._reader.is_terminated or not self._reader.accept(token):
                break
        num_valid = self._reader.num_taken - before
        self._reader.rollback(num_valid)
        return tokens[:num_valid]

    def rollback(self, num_tokens: int) -> None:
        self._reader.rollback(num_tokens)

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        if self._reader.num_taken == 0 and (request := self._request()) is not None:
            self._num_before = request.num_output_tokens
        left = self._num_tokens - self._num_before - self._reader.num_taken
        self._reader.fill(bitmask[batch_index].numpy(), left)

    def is_terminated(self) -> bool:
        return self._reader.is_terminated

    def reset(self) -> None:
        self._reader.rollback(self._reader.num_taken)
