"""Finished rows on their way to disk, in parts.

Rows wait in memory per chunk until `flush_rows` of them or `flush_s` seconds have gathered, or the
chunk is finished, because each part belongs to one chunk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rel_batch.config import StoreConfig
from rel_batch.records import Completion
from rel_batch.store import RunFolder


class Publisher:
    """Publishes the rows of one worker into one run folder."""

    def __init__(
        self,
        run: RunFolder,
        settings: StoreConfig,
        *,
        worker: str,
        on_part: Callable[[Path], None],
    ) -> None:
        self._run = run
        self._settings = settings
        self._worker = worker
        self._on_part = on_part
        # Finished rows by chunk, and when the oldest of them finished.
        self._waiting: dict[int, list[Completion]] = {}
        self._waiting_since: dict[int, float] = {}
        # When the work on each chunk's next part began, in seconds since 1970.
        self._begun: dict[int, float] = {}

    def begin(self, chunk: int) -> None:
        """Note that the work on a chunk begins now."""
        self._begun[chunk] = time.time()

    def add(self, completion: Completion) -> None:
        """Take one finished row. Raises StoreError."""
        chunk = completion.chunk
        waiting = self._waiting.setdefault(chunk, [])
        waiting.append(completion)
        self._waiting_since.setdefault(chunk, time.monotonic())
        if len(waiting) >= self._settings.flush_rows:
            self.publish(chunk)

    def flush_due(self) -> None:
        """Publish what has waited for long enough. Raises StoreError."""
        now = time.monotonic()
        for chunk, since in list(self._waiting_since.items()):
            if now - since >= self._settings.flush_s:
                self.publish(chunk)

    def flush(self) -> None:
        """Publish every finished row. Raises StoreError."""
        for chunk in list(self._waiting):
            self.publish(chunk)

    def publish(self, chunk: int) -> None:
        """Publish the finished rows of a chunk, if there are any. Raises StoreError."""
        if chunk not in self._waiting:
            return
        # Rows leave memory only after they are on disk: a failed publish can be tried again.
        part = self._run.publish_part(
            chunk, self._waiting[chunk], worker=self._worker, started=self._begun.get(chunk)
        )
        self.drop(chunk)
        self.begin(chunk)
        self._on_part(part)

    def drop(self, chunk: int) -> None:
        """Forget the rows of a chunk that are not published."""
        self._waiting.pop(chunk, None)
        self._waiting_since.pop(chunk, None)
