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

from rel_batch.config import validate_config
from rel_batch.engine.process import become_parent
from rel_batch.launch.background import background_scoring
from rel_batch.launch.engines import EarlyEngine, load_engine
from rel_batch.launch.progress import Progress
from rel_batch.launch.setup import Setup, load_setup
from rel_batch.plan import Materialiser
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder
from rel_batch.store.claims import Claims, new_worker_id
from rel_batch.worker import FailureLimit, Outfit, Stop, Worker, WorkerSettings


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run that this process has worked on.

    `num_missing` is the number of planned requests without a row: 0 for a complete run.
    """

    run: RunFolder
    num_missing: int


@dataclass(frozen=True, slots=True)
class Supervised:
    """What a worker is told by the process that has started it, and scores its parts.

    Attributes:
        settings: a config to use in place of the stored one.
        wait_for_plan: returns when the run is planned.
        early_max_model_len: the context of an engine to start before; None to start it after.
    """

    settings: Mapping[str, Any]
    wait_for_plan: Callable[[], object]
    early_max_model_len: int | None = None


def join_run(
    path: Path,
    progress: Progress,
    stop: Stop | None = None,
    *,
    worker: str | None = None,
    info: Mapping[str, Any] | None = None,
    limit: FailureLimit | None = None,
    supervised: Supervised | None = None,
) -> RunOutcome:
    """Work on the run in `path` until every request has a row.

    `worker` is this worker's id, `info` what it tells of itself to whoever watches. Raises
    StopRequested and RelBatchError.
    """
    stop = stop or Stop()
    scores = supervised is None
    with contextlib.ExitStack() as stack:
        early: EarlyEngine | None = None
        with stop.interruptible():
            if supervised is not None:
                if supervised.early_max_model_len is not None:
                    config = validate_config(supervised.settings, "settings")
                    worker = worker or new_worker_id()
                    log_file = _log_file(path, worker)
                    early = EarlyEngine(
                        config, supervised.early_max_model_len, log_file, progress.say
                    )
                    stack.enter_context(early)
                supervised.wait_for_plan()
            setup = load_setup(RunFolder.open(path), supervised and supervised.settings)
        work_here(
            setup, progress, stop, worker=worker, info=info, limit=limit, scores=scores, early=early
        )
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
    early: EarlyEngine | None = None,
) -> None:
    """Be one worker of a run, as `join_run`; after `most_deaths` of its engine it gives up.

    Without `scores` the parts are left to another process to be scored.
    """
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
        log_file = _log_file(setup.run.path, claims.worker)
        outfit = Outfit(
            materialise=Materialiser(
                setup.instances, config.arms, setup.renderer, setup.compile_constraint
            ),
            max_model_len=setup.max_model_len,
            load_engine=partial(load_engine, setup, log_file, progress.say, early),
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


def _log_file(run_path: Path, worker: str) -> Path:
    return run_path / "logs" / f"engine-{worker}.log"


def _ignore(part: Path) -> None:
    del part
