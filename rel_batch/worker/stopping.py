"""How a signal ends a worker: no new requests, what is finished goes to disk, claims go back.

    with stop_on_signals() as stop:            # SIGTERM, SIGINT, SIGUSR2; main thread only
        with stop.interruptible():             # a signal ends this block at once
            engine = load()
            with stop.shielded():              # and waits for the end of this one
                publish()

A signal outside of such blocks is remembered and ends the next one. Surprising: `StopRequested` is
no Exception, because what is interrupted (vLLM, torch) catches every Exception that it sees.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Generator
from types import FrameType

from rel_batch.errors import EXIT_INTERRUPTED

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
_SHOW_CURSOR = "\x1b[?25h"


class StopRequested(BaseException):
    """Somebody asked this process to stop; `reason` is the signal's name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Stop:
    """Whether this process was asked to stop, and where that may interrupt it."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._interruptible = False

    def request(self, reason: str) -> None:
        """Ask to stop. Raises StopRequested inside an interruptible block of this thread."""
        if self.reason is None:
            self.reason = reason
            self._raise_if_due()

    @contextlib.contextmanager
    def interruptible(self) -> Generator[None]:
        """A block that may be left at any point."""
        with self._set(True):
            yield

    @contextlib.contextmanager
    def shielded(self) -> Generator[None]:
        """A block that has to reach its end, even within an interruptible one."""
        with self._set(False):
            yield

    def sleep(self, seconds: float) -> None:
        """Sleep, but not through a request to stop. Raises StopRequested."""
        with self.interruptible():
            time.sleep(seconds)

    @contextlib.contextmanager
    def _set(self, interruptible: bool) -> Generator[None]:
        before, self._interruptible = self._interruptible, interruptible
        try:
            self._raise_if_due()
            yield
        finally:
            self._interruptible = before
        self._raise_if_due()

    def _raise_if_due(self) -> None:
        if self._interruptible and self.reason is not None:
            # Once: what handles it must not be interrupted by it again.
            self._interruptible = False
            raise StopRequested(self.reason)


@contextlib.contextmanager
def stop_on_signals() -> Generator[Stop]:
    """A Stop that signals ask. A second SIGINT ends the process at once."""
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.reason is not None and number == signal.SIGINT:
            if sys.stderr.isatty():
                os.write(2, _SHOW_CURSOR.encode())
            os._exit(EXIT_INTERRUPTED)  # children die with their parent (engine/process.py)
        stop.request(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
