"""Starting an engine: which one, with how much memory, and who else is on its device.

Where the memory does not suffice, fewer sequences at once (`max_num_seqs`) are tried first, because
that costs speed alone, then a smaller share of the device (`gpu_memory_utilization`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rel_batch.checkpoint import Checkpoint
from rel_batch.config import EngineConfig
from rel_batch.constraints import Constraint
from rel_batch.engine import Engine, EngineMemoryError
from rel_batch.engine.fake import (
    FakeEngine,
    Replies,
    mute_replies,
    oracle_replies,
    scripted_replies,
)
from rel_batch.engine.fake_process import FakeProcessEngine
from rel_batch.errors import EngineError
from rel_batch.launch.devices import holders_of_visible_devices, uses_gpus
from rel_batch.launch.setup import Setup

# vLLM's own defaults, where the config says nothing; 256 is the least that any device gets.
_MAX_NUM_SEQS = 256
_GPU_MEMORY_UTILIZATION = 0.9
_LEAST_NUM_SEQS = 32
_LEAST_UTILIZATION = 0.45


def load_engine(setup: Setup, log_file: Path, say: Callable[[str], None]) -> Engine:
    """Start the run's engine and let it prove that it constrains. Raises EngineError."""
    config = setup.config
    say(f"starting {config.engine.kind} (its output is in {log_file})")
    started = time.monotonic()
    if setup.checkpoint is None:
        engine = _fake_engine(setup)
        say("engine ready")
        return engine
    from rel_batch.engine.canary import prove_constraints_hold

    for holder in holders_of_visible_devices() if uses_gpus(config) else ():
        say(holder)
    engine = start_within_memory(
        lambda settings: _start(setup, setup.checkpoint, settings, log_file), config.engine, say
    )
    try:
        prove_constraints_hold(engine, setup.renderer, _one_of_each_kind(setup))
    except BaseException:
        engine.close()
        raise
    say(f"engine ready after {time.monotonic() - started:.0f} s")
    return engine


def follow_engine(setup: Setup, log_file: Path, ended: Callable[[], bool]) -> None:
    """Run this node's share of an engine over several nodes, until the engine has `ended`.

    Raises EngineError.
    """
    from rel_batch.engine.nodes import follow
    from rel_batch.engine.vllm_arguments import engine_arguments, prepare_environment

    if setup.checkpoint is None:
        raise EngineError("the fake engine has one node; set slurm.nodes_per_task to 1")
    config = setup.config
    prepare_environment(config.engine)
    arguments = engine_arguments(
        setup.checkpoint,
        config.model,
        config.engine,
        setup.max_model_len,
        _is_seeded(setup),
        config.seed,
    )
    follow(arguments, log_file, ended)


def start_within_memory(
    start: Callable[[EngineConfig], Engine], settings: EngineConfig, say: Callable[[str], None]
) -> Engine:
    """Start an engine with `settings`, or with the nearest for which there is memory.

    Raises EngineError.
    """
    while True:
        try:
            return start(settings)
        except EngineMemoryError as error:
            lower = with_less_memory(settings, device_is_shared=error.device_is_shared)
            if lower is None:
                raise
            settings, change = lower
            say(f"{error.message}; trying again with {change}")


def with_less_memory(
    settings: EngineConfig, *, device_is_shared: bool = False
) -> tuple[EngineConfig, str] | None:
    """Settings that need less memory, and what is different in words; None where none are left.

    `device_is_shared` says that another program holds so much of the device that fewer sequences
    would not help.
    """
    arguments = dict(settings.engine_args)
    num_seqs = int(arguments.get("max_num_seqs", 2 * _MAX_NUM_SEQS))
    utilization = float(arguments.get("gpu_memory_utilization", _GPU_MEMORY_UTILIZATION))
    if num_seqs // 2 >= _LEAST_NUM_SEQS and not device_is_shared:
        arguments["max_num_seqs"] = num_seqs // 2
        change = f"max_num_seqs {num_seqs // 2}"
    elif utilization - 0.1 >= _LEAST_UTILIZATION:
        arguments["gpu_memory_utilization"] = round(utilization - 0.1, 2)
        change = f"gpu_memory_utilization {arguments['gpu_memory_utilization']}"
    else:
        return None
    return settings.model_copy(update={"engine_args": arguments}), change


def _start(
    setup: Setup, checkpoint: Checkpoint | None, settings: EngineConfig, log_file: Path
) -> Engine:
    from rel_batch.engine.vllm import VllmEngine  # loads torch: only where a model runs

    assert checkpoint is not None
    return VllmEngine(
        checkpoint,
        setup.config.model,
        settings,
        max_model_len=setup.max_model_len,
        seeded=_is_seeded(setup),
        seed=setup.config.seed,
        log_file=log_file,
    )


def _is_seeded(setup: Setup) -> bool:
    return any(arm.temperature > 0 for arm in setup.config.arms)


def _fake_engine(setup: Setup) -> Engine:
    replies = _fake_replies(setup)
    if setup.config.engine.fake_process:
        return FakeProcessEngine(replies, setup.config.engine.max_in_flight)
    return FakeEngine(replies)


def _fake_replies(setup: Setup) -> Replies:
    engine = setup.config.engine
    if engine.fake_script is not None:
        return scripted_replies(setup.located(engine.fake_script), setup.instances)
    return mute_replies() if engine.fake_replies == "mute" else oracle_replies(setup.instances)


def _one_of_each_kind(setup: Setup) -> Sequence[tuple[Constraint, int]]:
    """The quickest constraint of each kind that compiles, with its bound on the reply."""
    quickest: dict[str, tuple[Constraint, int]] = {}
    for example in setup.index.examples:
        if example.kind != "none" and example.kind not in quickest:
            constraint = setup.constraint_of(example.task, example.arm, example.instance_key)
            compiled = setup.compile_constraint(constraint)
            if compiled is None or compiled.problem is None:
                quickest[example.kind] = constraint, example.max_tokens
    return list(quickest.values())
