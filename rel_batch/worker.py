"""Runs requests through an engine and publishes what finishes, part by part.

A worker holds no state that matters: whatever is not published when it dies is run again. Rows
wait in memory per chunk until `flush_rows` of them or `flush_s` seconds have gathered, whichever
comes first, because each part belongs to one chunk.

Surprising: on any way out (an error, an interrupt) the rows that have finished are published
before the error goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rel_batch.config import StoreConfig
from rel_batch.engine import Engine
from rel_batch.records import Completion, Request
from rel_batch.store import RunFolder


class Worker:
    """Publishes the completions of one engine into one run folder."""

    def __init__(
        self,
        run: RunFolder,
        settings: StoreConfig,
        *,
        on_completion: Callable[[Completion], None],
        on_part: Callable[[Path], None],
    ) -> None:
        self._run = run
        self._settings = settings
        self._on_completion = on_completion
        self._on_part = on_part
        # Finished rows by chunk, and when the oldest of them finished.
        self._waiting: dict[int, list[Completion]] = {}
        self._waiting_since: dict[int, float] = {}

    def work(self, engine: Engine, requests: Iterable[Request]) -> None:
        """Generate and publish every request. Raises EngineError and StoreError."""
        try:
            for completion in engine.generate(requests):
                self.add(completion)
        finally:
            self.flush()

    def add(self, completion: Completion) -> None:
        """Take one finished row, and publish what is due."""
        self._on_completion(completion)
        now = time.monotonic()
        waiting = self._waiting.setdefault(completion.chunk, [])
        waiting.append(completion)
        self._waiting_since.setdefault(completion.chunk, now)
        if len(waiting) >= self._settings.flush_rows:
            self._publish(completion.chunk)
        for chunk, since in list(self._waiting_since.items()):
            if now - since >= self._settings.flush_s:
                self._publish(chunk)

    def flush(self) -> None:
        """Publish every finished row."""
        for chunk in list(self._waiting):
            self._publish(chunk)

    def _publish(self, chunk: int) -> None:
        # Rows leave memory only after they are on disk: a failed publish can be tried again.
        part = self._run.publish_part(chunk, self._waiting[chunk])
        del self._waiting[chunk], self._waiting_since[chunk]
        self._on_part(part)
