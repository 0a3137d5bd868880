"""The fake engine in a process of its own, so that it can die like a real one.

    FakeProcessEngine(replies, max_in_flight=64)

A reply with `dies` ends the process before it is given. Surprising: the process is forked, so that
`replies` may be any function; the engine has to be made before its process has other threads that
hold locks, as everywhere that forks.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from rel_batch.engine import EngineDiedError
from rel_batch.engine.fake import FakeEngine, Replies
from rel_batch.engine.process import become_parent, die_with_parent
from rel_batch.records import Completion, Request

_ENDS_WITHIN_S = 10.0
# More could fill both directions of the pipe, and each side would wait for the other.
_MOST_IN_FLIGHT = 32


class FakeProcessEngine:
    """Replies one request after another, while at most `max_in_flight` of them wait for it."""

    def __init__(self, replies: Replies, max_in_flight: int) -> None:
        self._max_in_flight = min(max_in_flight, _MOST_IN_FLIGHT)
        become_parent()
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_reply, args=(theirs, self._connection, replies), daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """See `Engine.generate`."""
        source = iter(requests)
        num_in_flight = 0
        exhausted = False
        try:
            while True:
                while not exhausted and num_in_flight < self._max_in_flight:
                    try:
                        request = next(source)
                    except StopIteration:
                        exhausted = True
                        break
                    if request is None:
                        break
                    # Counted first: it is lost where sending it fails.
                    num_in_flight += 1
                    self._connection.send(request)
                if num_in_flight:
                    completion = self._connection.recv()
                    num_in_flight -= 1
                    yield completion
                elif exhausted:
                    return
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise EngineDiedError(
                f"the fake engine died with {num_in_flight} requests in flight"
            ) from error

    def close(self) -> None:
        """End the process and wait for it."""
        self._connection.close()
        self._process.join(_ENDS_WITHIN_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _reply(connection: Connection, parents_end: Connection, replies: Replies) -> None:
    die_with_parent()
    # Or this process would keep open the end whose closing tells it to go.
    parents_end.close()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    engine = FakeEngine(replies, on_death=lambda: os.kill(os.getpid(), signal.SIGKILL))
    with connection:
        while True:
            try:
                request: Request = connection.recv()
                connection.send(next(engine.generate([request])))
            except (EOFError, BrokenPipeError, ConnectionResetError):
                os._exit(0)
