"""Scores published parts in another process, so that no engine's loop waits for RDKit."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from rel_batch.config import ScoringConfig
from rel_batch.engine.process import become_parent, die_with_parent
from rel_batch.scoring import PartTally, score_part
from rel_batch.store import RunFolder


class ScoreInBackground:
    """Scores parts one after another and reports each when it is done."""

    def __init__(
        self, run: RunFolder, settings: ScoringConfig, on_tally: Callable[[PartTally], None]
    ) -> None:
        self._run = run
        self._on_tally = on_tally
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
            self._on_tally(self._tallies.pop(0).result())

    def close(self, *, finish: bool) -> None:
        """End the process; with `finish`, after all that was asked is scored."""
        self._pool.shutdown(wait=True, cancel_futures=not finish)
        if finish:
            self.report()


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
    # A request to stop is for the parent, which then waits for the part that is being scored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
