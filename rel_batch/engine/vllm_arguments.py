"""What an engine of vLLM is started with: which arguments are ours, the user's, or nobody's.

    check_engine_args({"max_num_seqs": 64})       # raises ConfigError for what may not be passed

Surprising: the grammar backend is pinned. Left to choose for itself, vLLM fixes one backend at the
first structured request and validates later ones with another.
"""

# vLLM is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rel_batch.checkpoint import Checkpoint
from rel_batch.config import EngineConfig, ModelConfig
from rel_batch.engine.nodes import Nodes
from rel_batch.engine.process import become_parent
from rel_batch.errors import ConfigError, unknown_name

# vLLM arguments that the config has a place of its own for, or that this design rules out.
OWN_ARGUMENTS: Mapping[str, str] = {
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
_NO_SPECULATION = "speculative decoding is not checked against constraints here"
_NO_PARSER = (
    "a thought that it never sees closed leaves the reply unconstrained; set an arm's thinking "
    "instead"
)
_OTHER_TOKENS = "it could change a reply after its constraint was applied"
REFUSED_ARGUMENTS: Mapping[str, str] = {
    "speculative_config": _NO_SPECULATION,
    "spec_method": _NO_SPECULATION,
    "spec_model": _NO_SPECULATION,
    "spec_tokens": _NO_SPECULATION,
    "reasoning_parser": _NO_PARSER,
    "reasoning_parser_plugin": _NO_PARSER,
    "reasoning_config": _NO_PARSER,
    "diffusion_config": "tokens that are not written in their order cannot be held to a constraint",
    "watermark_config": _OTHER_TOKENS,
    "data_parallel_size": "one independent engine per GPU group is used instead",
    "generation_config": "sampling is set by the arms alone",
    "override_generation_config": "sampling is set by the arms alone",
    "scheduling_policy": "a request's second call goes before other requests' first",
    "scheduler_cls": "a scheduler of another make may leave constraints out",
    "logits_processors": _OTHER_TOKENS,
    "logprobs_mode": "what a constraint overruled is measured by the model's own log-probabilities",
    "skip_tokenizer_init": "constraints and replies are text",
    "tokenizer_mode": "constraints are compiled with the checkpoint's own fast tokenizer",
}


def check_engine_args(engine_args: Mapping[str, Any]) -> None:
    """Refuse arguments that vLLM does not know, or that are not to be passed this way.

    Raises ConfigError.
    """
    from vllm.engine.arg_utils import EngineArgs

    known = [field.name for field in dataclasses.fields(EngineArgs)]
    for name in engine_args:
        if name in OWN_ARGUMENTS:
            raise ConfigError(f"engine.engine_args.{name}: set {OWN_ARGUMENTS[name]} instead")
        if name in REFUSED_ARGUMENTS:
            raise ConfigError(f"engine.engine_args.{name} is refused: {REFUSED_ARGUMENTS[name]}")
        if name not in known:
            raise ConfigError(unknown_name("vLLM argument engine.engine_args", name, known))


def prepare_environment(settings: EngineConfig) -> None:
    """What vLLM reads from the environment, before it is imported."""
    become_parent()
    for variable, value in {
        # Forking a process that has threads, or a CUDA context, is undefined.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(settings.cpu_kv_cache_gib),
    }.items():
        os.environ.setdefault(variable, value)
    if settings.batch_invariant:
        os.environ["VLLM_BATCH_INVARIANT"] = "1"


def engine_arguments(
    checkpoint: Checkpoint,
    model: ModelConfig,
    settings: EngineConfig,
    max_model_len: int,
    seeded: bool,
    seed: int,
) -> dict[str, Any]:
    """vLLM's arguments for an engine, on this node of those that it has. Raises RelBatchError."""
    from vllm.platforms import current_platform

    from rel_batch.engine.structured_outputs import carrier_of

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
        "scheduling_policy": "priority",
        "use_tqdm_on_load": False,
        "structured_outputs_config": {
            "backend": carrier_of(settings.backend),
            # JSON grammars otherwise allow newlines for ever, and weak models take them.
            "disable_any_whitespace": True,
        },
    }
    if current_platform.is_cpu():
        if settings.batch_invariant:
            raise ConfigError(
                "engine.batch_invariant: vLLM's CPU build has no batch-invariant kernels",
                hint="leave it out on a CPU; max_num_seqs: 1 in engine_args gives equal batches",
            )
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
    nodes = Nodes.from_environment(os.environ)
    return arguments if nodes is None else arguments | nodes.arguments


def has_bf16_instructions(cpuinfo: str) -> bool:
    """Whether this CPU computes in bfloat16 natively (`/proc/cpuinfo` text).

    Without these instructions bfloat16 prefill is about 11 times slower than float32.
    """
    words = set(cpuinfo.split())
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})
