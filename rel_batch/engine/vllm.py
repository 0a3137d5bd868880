"""vLLM offline: requests are added as earlier ones finish, so the batch never drains.

    engine = VllmEngine(checkpoint, settings, max_model_len=2048, log_file=...)

Surprising: vLLM's engine core is a child process. Its output goes to the run's log, its grammar
backend is pinned (left to choose for itself, vLLM fixes one backend at the first structured
request and validates later ones with another), and each sampling parameter is ours: nothing but
the end-of-sequence ids is taken from the checkpoint's generation config.
"""

# vLLM is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rel_batch.checkpoint import Checkpoint
from rel_batch.config import EngineConfig, ModelConfig
from rel_batch.engine import failed_completion, finished_completion
from rel_batch.engine.process import become_parent, output_to
from rel_batch.errors import ConfigError, EngineError, unknown_name
from rel_batch.records import Completion, Request

# vLLM arguments that the config has a place of its own for, or that this design rules out.
_OWN_ARGUMENTS: Mapping[str, str] = {
    "model": "model.path",
    "tokenizer": "model.tokenizer",
    "revision": "model.revision",
    "tokenizer_revision": "model.revision",
    "trust_remote_code": "model.trust_remote_code",
    "dtype": "model.dtype",
    "max_model_len": "model.max_model_len",
    "tensor_parallel_size": "engine.tensor_parallel_size",
    "structured_outputs_config": "engine.backend",
    "seed": "seed",
}
_REFUSED_ARGUMENTS: Mapping[str, str] = {
    "speculative_config": "speculative decoding is not checked against constraints here",
    "data_parallel_size": "one independent engine per GPU group is used instead",
    "generation_config": "sampling is set by the arms alone",
    "override_generation_config": "sampling is set by the arms alone",
    "logits_processors": "they could change a reply after its constraint was applied",
}
# Requests added between two steps of the engine: enough to fill a batch, few enough not to stall.
_ADDED_PER_STEP = 64


class VllmEngine:
    """One vLLM engine with its child processes."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: ModelConfig,
        settings: EngineConfig,
        *,
        max_model_len: int,
        seeded: bool,
        seed: int,
        log_file: Path,
    ) -> None:
        """Start the engine; `seeded` says that some requests have seeds of their own.

        Raises ConfigError for a bad argument, EngineError if vLLM fails.
        """
        self._max_in_flight = settings.max_in_flight
        self._backend = settings.backend
        self._log_file = log_file
        _prepare_environment(settings)
        try:
            with output_to(log_file):
                self._llm = _start(checkpoint, model, settings, max_model_len, seeded, seed)
            # vLLM sets up its logger while it starts; from here on it stays off the terminal.
            logging.getLogger("vllm").handlers = [logging.FileHandler(log_file)]
        except (ConfigError, KeyboardInterrupt):
            raise
        except Exception as error:  # whatever vLLM, torch or a checkpoint's code raise
            raise EngineError(
                f"vLLM could not start with {checkpoint.name}: {_first_line(error)}",
                hint=f"its whole output is in {log_file}",
            ) from error

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """See `Engine.generate`."""
        from vllm.v1.engine.exceptions import EngineDeadError

        core = self._llm.llm_engine
        in_flight: dict[str, tuple[Request, float]] = {}
        source = iter(requests)
        exhausted = False
        try:
            while True:
                added = 0
                while not exhausted and added < _ADDED_PER_STEP:
                    if len(in_flight) >= self._max_in_flight:
                        break
                    request = next(source, None)
                    if request is None:
                        exhausted = True
                        break
                    refusal = self._add(request)
                    if refusal is not None:
                        yield refusal
                        continue
                    in_flight[request.planned.key] = (request, time.monotonic())
                    added += 1
                if not in_flight:
                    if exhausted:
                        return
                    continue
                for output in core.step():
                    if output.finished:
                        request, since = in_flight.pop(output.request_id)
                        yield _completion(request, output, time.monotonic() - since)
        except EngineDeadError as error:
            raise EngineError(
                f"vLLM's engine died with {len(in_flight)} requests in flight",
                hint=f"its whole output is in {self._log_file}; finished rows are kept, and the "
                "same command goes on from there",
            ) from error
        finally:
            if in_flight:
                _abort(core, list(in_flight))

    def _add(self, request: Request) -> Completion | None:
        """Hand a request to vLLM; a completion if vLLM refuses it."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        from rel_batch.engine.structured_outputs import structured_outputs_for

        planned = request.planned
        try:
            params = SamplingParams(
                temperature=request.temperature,
                top_p=request.top_p,
                max_tokens=planned.max_tokens,
                seed=planned.seed,
                structured_outputs=structured_outputs_for(request.constraint, self._backend),
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            self._llm.llm_engine.add_request(
                planned.key, {"prompt_token_ids": list(request.prompt_token_ids)}, params
            )
        except ValueError as error:  # vLLM's validation of one request: the others go on
            return failed_completion(request, "engine_error", _first_line(error))
        return None

    def close(self) -> None:
        """Stop the engine's processes and wait for them."""
        self._llm.llm_engine.engine_core.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def versions() -> dict[str, str]:
    """Versions of vLLM and torch, for the manifest."""
    import torch
    import vllm

    return {"vllm": vllm.__version__, "torch": str(torch.__version__)}


def has_bf16_instructions(cpuinfo: str) -> bool:
    """Whether this CPU computes in bfloat16 natively (`/proc/cpuinfo` text).

    Without these instructions bfloat16 prefill is about 11 times slower than float32.
    """
    words = set(cpuinfo.split())
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})


def check_engine_args(engine_args: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse arguments that vLLM does not know, or that are not to be passed this way."""
    for name in engine_args:
        if name in _OWN_ARGUMENTS:
            raise ConfigError(f"engine.engine_args.{name}: set {_OWN_ARGUMENTS[name]} instead")
        if name in _REFUSED_ARGUMENTS:
            raise ConfigError(f"engine.engine_args.{name} is refused: {_REFUSED_ARGUMENTS[name]}")
        if name not in known:
            raise ConfigError(unknown_name("vLLM argument engine.engine_args", name, known))


def _prepare_environment(settings: EngineConfig) -> None:
    become_parent()
    for variable, value in {
        # Forking a process that has threads, or a CUDA context, is undefined.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(settings.cpu_kv_cache_gib),
    }.items():
        os.environ.setdefault(variable, value)


def _start(
    checkpoint: Checkpoint,
    model: ModelConfig,
    settings: EngineConfig,
    max_model_len: int,
    seeded: bool,
    seed: int,
) -> Any:
    from vllm import LLM
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform

    known = [field.name for field in dataclasses.fields(EngineArgs)]
    check_engine_args(settings.engine_args, known)
    arguments: dict[str, Any] = {
        "model": str(checkpoint.path),
        "tokenizer": model.tokenizer,
        "trust_remote_code": model.trust_remote_code,
        "dtype": model.dtype,
        "max_model_len": max_model_len,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "seed": seed % 2**32,
        "disable_log_stats": True,
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,
        "structured_outputs_config": {
            "backend": settings.backend,
            # JSON grammars otherwise allow newlines for ever, and weak models take them.
            "disable_any_whitespace": True,
        },
    }
    if current_platform.is_cpu():
        arguments["enforce_eager"] = True
        if seeded:
            # A seeded request whose prefill is cut in two kills vLLM's CPU engine ("CPU Generator
            # does not use offset"), and any prompt may be cut where a batch is full.
            arguments["enable_chunked_prefill"] = False
            arguments["max_num_batched_tokens"] = max(4096, max_model_len)
        if model.dtype == "auto":
            cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
            arguments["dtype"] = "bfloat16" if has_bf16_instructions(cpuinfo) else "float32"
    arguments.update(settings.engine_args)
    return LLM(**arguments)


def _completion(request: Request, output: Any, latency_s: float) -> Completion:
    generated = output.outputs[0]
    return finished_completion(
        request,
        reply=generated.text,
        output_token_ids=tuple(generated.token_ids),
        finish_reason=str(generated.finish_reason),
        num_cached_tokens=output.num_cached_tokens or 0,
        latency_s=latency_s,
    )


def _abort(core: Any, keys: list[str]) -> None:
    try:
        core.abort_request(keys)
    except Exception:
        # The engine is going or gone; closing it is all that is left, and the caller does that.
        logging.getLogger(__name__).debug("abort failed", exc_info=True)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
