"""One worker of a run, in this process.

    join_run(Path("outputs/night"), progress, stop)      # from any machine that sees the folder

A worker reads all that it needs from the run folder (`setup.py`). It may come at any time, and go
at any time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rel_batch.engine.process import become_parent
from rel_batch.launch.background import background_scoring
from rel_batch.launch.engines import load_engine
from rel_batch.launch.progress import Progress
from rel_batch.launch.setup import Setup, load_setup
from rel_batch.plan import Materialiser
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder
from rel_batch.store.claims import Claims
from rel_batch.worker import FailureLimit, Outfit, Stop, Worker, WorkerSettings


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run that this process has worked on.

    `num_missing` is the number of planned requests without a row: 0 for a complete run.
    """

    run: RunFolder
    num_missing: int


def join_run(
    path: Path,
    progress: Progress,
    stop: Stop | None = None,
    *,
    worker: str | None = None,
    info: Mapping[str, Any] | None = None,
    limit: FailureLimit | None = None,
    scores: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> RunOutcome:
    """Work on the run in `path` until every request has a row.

    `worker` is this worker's id, `info` what it tells of itself to whoever watches; without
    `scores` the parts are left to another process to be scored; `settings` is a config to use in
    place of the stored one. Raises StopRequested and RelBatchError.
    """
    stop = stop or Stop()
    with stop.interruptible():
        setup = load_setup(RunFolder.open(path), settings)
    work_here(setup, progress, stop, worker=worker, info=info, limit=limit, scores=scores)
    if scores:
        with stop.interruptible():
            scoring = setup.config.scoring
            score_run(setup.run, overlap=scoring.overlap, audited=scoring.audited)
    return RunOutcome(setup.run, num_missing=setup.counted_again().num_missing)


def work_here(
    setup: Setup,
    progress: Progress,
    stop: Stop,
    *,
    worker: str | None = None,
    info: Mapping[str, Any] | None = None,
    limit: FailureLimit | None = None,
    scores: bool = True,
    most_deaths: int = 5,
) -> None:
    """Be one worker of a run, as `join_run`; after `most_deaths` of its engine it gives up."""
    if not setup.num_missing:
        return
    become_parent()
    config = setup.config
    progress.begin(setup.index.num_requests, setup.index.num_requests - setup.num_missing)
    with contextlib.ExitStack() as stack:
        stack.callback(progress.end)
        on_part: Callable[[Path], None] = _ignore
        if scores:
            on_part = stack.enter_context(
                background_scoring(setup.run, config.scoring, progress.scored)
            )
        claims = stack.enter_context(
            Claims(setup.run.path, timeout_s=config.store.claim_timeout_s, worker=worker, info=info)
        )
        claims.sweep()
        log_file = setup.run.path / "logs" / f"engine-{claims.worker}.log"
        outfit = Outfit(
            materialise=Materialiser(
                setup.instances, config.arms, setup.renderer, setup.compile_constraint
            ),
            max_model_len=setup.max_model_len,
            load_engine=partial(load_engine, setup, log_file, progress.say),
        )
        Worker(
            setup.run,
            setup.missing,
            claims,
            outfit,
            WorkerSettings(config.store, most_deaths=most_deaths),
            stop,
            limit=limit,
            on_completion=progress.completed,
            on_part=on_part,
            say=progress.say,
        ).work()


def _ignore(part: Path) -> None:
    del part
