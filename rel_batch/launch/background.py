"""Scores published parts in other processes, so that no engine's loop waits for RDKit.

Each process holds RDKit and the run's instances (195 MiB with 300 of REL-C3), so how many there are
is bounded. What one of them scores in a second is in docs/performance.md.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from rel_batch.config import ScoringConfig
from rel_batch.engine.process import become_parent, die_with_parent
from rel_batch.scoring import PartTally, get_ready, score_part
from rel_batch.store import RunFolder

_MOST_PROCESSES = 4
# The rest is for the engine, whose masks and batches are made on the CPU, too.
_CORES_FOR_EACH = 4
_NICENESS = 10


class ScoreInBackground:
    """Scores parts as they come and reports each when it is done."""

    def __init__(
        self, run: RunFolder, settings: ScoringConfig, on_tally: Callable[[PartTally], None]
    ) -> None:
        self._run = run
        self._on_tally = on_tally
        self._extras = {"overlap": settings.overlap, "audited": settings.audited}
        become_parent()
        self._pool = ProcessPoolExecutor(
            max_workers=num_processes(),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_scoring_process,
        )
        self._tallies: list[Future[PartTally]] = []
        # Now, while the engine starts: RDKit and the instances are read before there is a part.
        for _ in range(num_processes()):
            self._pool.submit(get_ready, run.path)

    def __call__(self, part: Path) -> None:
        self._tallies.append(self._pool.submit(score_part, self._run.path, part, **self._extras))
        self.report()

    def report(self) -> None:
        """Pass on what has been scored since the last call."""
        waiting: list[Future[PartTally]] = []
        for tally in self._tallies:
            if tally.done():
                self._on_tally(tally.result())
            else:
                waiting.append(tally)
        self._tallies = waiting

    def close(self, *, finish: bool) -> None:
        """End the processes; with `finish`, after all that was asked is scored."""
        self._pool.shutdown(wait=True, cancel_futures=not finish)
        if finish:
            self.report()


def num_processes() -> int:
    """How many processes score, by the cores that this one may use."""
    return max(1, min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) // _CORES_FOR_EACH))


@contextlib.contextmanager
def background_scoring(
    run: RunFolder, settings: ScoringConfig, on_tally: Callable[[PartTally], None]
) -> Generator[ScoreInBackground]:
    """On an error or a request to stop, what is not scored yet is left to the next run."""
    scorer = ScoreInBackground(run, settings, on_tally)
    finish = False
    try:
        yield scorer
        finish = True
    finally:
        scorer.close(finish=finish)


def _scoring_process() -> None:
    die_with_parent()
    # On a machine that is busy the engine comes first; at its end nobody else wants the cores.
    os.nice(_NICENESS)
    # A request to stop is for the parent, which then waits for the part that is being scored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
