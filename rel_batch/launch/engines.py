"""Starting an engine: which one, with how much memory, and who else is on its device.

Where the memory does not suffice, fewer sequences at once (`max_num_seqs`) are tried first, because
that costs speed alone, then a smaller share of the device (`gpu_memory_utilization`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from rel_batch.checkpoint import Checkpoint, resolve_checkpoint
from rel_batch.config import EngineConfig, RunConfig
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
from rel_batch.errors import EngineError, RelBatchError
from rel_batch.launch.devices import holders_of_visible_devices, uses_gpus
from rel_batch.launch.setup import Setup

# vLLM's own defaults, where the config says nothing; 256 is the least that any device gets.
_MAX_NUM_SEQS = 256
_GPU_MEMORY_UTILIZATION = 0.9
_LEAST_NUM_SEQS = 32
_LEAST_UTILIZATION = 0.45


def load_engine(
    setup: Setup, log_file: Path, say: Callable[[str], None], early: EarlyEngine | None = None
) -> Engine:
    """Start the run's engine, or take the one that was started `early`, and let it prove that it
    constrains. Raises EngineError."""
    started = time.monotonic()
    if setup.checkpoint is None:
        say(f"starting {setup.config.engine.kind}")
        engine = _fake_engine(setup)
        say("engine ready")
        return engine
    from rel_batch.engine.canary import prove_constraints_hold

    engine = early and early.take(setup.checkpoint, setup.max_model_len)
    if engine is None:
        engine = _start(setup.config, setup.checkpoint, setup.max_model_len, log_file, say)
    try:
        prove_constraints_hold(engine, setup.renderer, _one_of_each_kind(setup))
    except BaseException:
        engine.close()
        raise
    say(f"engine ready after {time.monotonic() - started:.0f} s")
    return engine


class EarlyEngine:
    """An engine that is started before there is a run, while it is being planned.

        with EarlyEngine(config, 20_000, log_file, say) as early:
            setup = ...                                    # wait for the plan
            engine = load_engine(setup, log_file, say, early)

    Of a plan an engine needs the longest request, and a context that is longer does as well. Where
    it cannot be started so, that is said, and the plan is waited for.
    """

    def __init__(
        self, config: RunConfig, max_model_len: int, log_file: Path, say: Callable[[str], None]
    ) -> None:
        self._max_model_len = max_model_len
        self._commit = ""
        self._engine: Engine | None = None
        if config.engine.kind != "vllm":
            return
        try:
            checkpoint = resolve_checkpoint(config.model)
            self._commit = checkpoint.commit
            self._engine = _start(config, checkpoint, max_model_len, log_file, say)
        except RelBatchError as error:
            say(f"{error.message}; the engine is started again when the run is planned")

    def take(self, checkpoint: Checkpoint, max_model_len: int) -> Engine | None:
        """The engine, once, if it is one for this checkpoint and this context."""
        engine, self._engine = self._engine, None
        if engine is None:
            return None
        if self._commit == checkpoint.commit and max_model_len <= self._max_model_len:
            return engine
        engine.close()
        return None

    def close(self) -> None:
        """End the engine if nobody has taken it."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        _is_seeded(config),
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
    config: RunConfig,
    checkpoint: Checkpoint,
    max_model_len: int,
    log_file: Path,
    say: Callable[[str], None],
) -> Engine:
    say(f"starting {config.engine.kind} (its output is in {log_file})")
    for holder in holders_of_visible_devices() if uses_gpus(config) else ():
        say(holder)

    def start(settings: EngineConfig) -> Engine:
        from rel_batch.engine.vllm import VllmEngine  # loads torch: only where a model runs

        return VllmEngine(
            checkpoint,
            config.model,
            settings,
            max_model_len=max_model_len,
            seeded=_is_seeded(config),
            seed=config.seed,
            log_file=log_file,
        )

    return start_within_memory(start, config.engine, say)


def _is_seeded(config: RunConfig) -> bool:
    return any(arm.temperature > 0 for arm in config.arms)


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
