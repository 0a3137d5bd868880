"""The loop of one worker, and the life of its engine.

An engine that dies is closed with its children, what was in it is noted (`deaths.py`), and a new
one is started after a while; when it dies again and again without a new row in between, the worker
gives up. On any way out the rows that have finished are published and the claims given back
before the engine is closed, which may take half a minute.

Surprising: the engine is loaded only when a chunk is claimed that needs one, so a worker that comes
when others have everything costs nothing while it waits.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rel_batch.config import StoreConfig
from rel_batch.engine import Engine, EngineDiedError
from rel_batch.errors import EngineError, StoreError
from rel_batch.records import Completion, PlannedRequest, Request
from rel_batch.store import RunFolder
from rel_batch.store.chunks import ChunkSize
from rel_batch.store.claims import Claims
from rel_batch.worker.deaths import Deaths
from rel_batch.worker.failures import FailureLimit
from rel_batch.worker.publisher import Publisher
from rel_batch.worker.stopping import Stop
from rel_batch.worker.supply import Supply


@dataclass(frozen=True)
class Outfit:
    """What a worker needs to run a run's requests.

    Attributes:
        materialise: gives a planned request its prompt and constraint.
        max_model_len: the context that the engine has.
        load_engine: starts an engine that has proved itself. Raises EngineError.
    """

    materialise: Callable[[PlannedRequest], Request]
    max_model_len: int
    load_engine: Callable[[], Engine]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker behaves.

    Attributes:
        store: when rows go to disk.
        first_pause_s: before a dead engine is started again; doubled each time it dies again
            without a new row in between, up to `longest_pause_s`.
        most_deaths: after so many deaths in a row the worker gives up.
    """

    store: StoreConfig
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    most_deaths: int = 5


class Worker:
    """Works on a run until every request has a row."""

    def __init__(
        self,
        run: RunFolder,
        todo: Mapping[int, ChunkSize],
        claims: Claims,
        outfit: Outfit,
        settings: WorkerSettings,
        stop: Stop,
        *,
        limit: FailureLimit | None = None,
        on_completion: Callable[[Completion], None] = lambda _: None,
        on_part: Callable[[Path], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`todo` are the chunks that had something missing when they were counted."""
        self._claims = claims
        self._outfit = outfit
        self._settings = settings
        self._stop = stop
        self._limit = limit or FailureLimit()
        self._on_completion = on_completion
        self._say = say
        self._num_rows = 0
        self._heart = _Heart(claims)
        self._publisher = Publisher(run, settings.store, worker=claims.worker, on_part=on_part)
        self._supply = Supply(
            run,
            todo,
            claims,
            Deaths(run.path),
            stop,
            materialise=outfit.materialise,
            max_model_len=outfit.max_model_len,
            on_row=self._take,
            on_idle=self._on_idle,
            publisher=self._publisher,
        )

    def work(self) -> None:
        """Generate and publish what is missing, and wait for what others work on.

        Raises StopRequested, EngineError (also where too many rows are failures) and StoreError.
        """
        deaths = 0
        with self._heart:
            while True:
                rows_before = self._num_rows
                try:
                    with self._putting_away(), self._stop.interruptible():
                        if self._supply.is_over():
                            return
                        engine = self._outfit.load_engine()
                    self._run(engine)
                    return
                except EngineDiedError as error:
                    deaths = 1 if self._num_rows > rows_before else deaths + 1
                    if deaths >= self._settings.most_deaths:
                        raise EngineError(
                            f"the engine died {deaths} times without a new row: {error.message}",
                            hint=error.hint,
                        ) from error
                    pause_s = self._settings.first_pause_s * 2 ** (deaths - 1)
                    pause_s = min(pause_s, self._settings.longest_pause_s)
                    self._say(f"{error.message}; a new one starts in {pause_s:.0f} s")
                    with self._putting_away():
                        # Noted only after the pause: a signal to a whole group of processes ends
                        # an engine, too, and that is nobody's fault.
                        self._stop.sleep(pause_s)
                        self._supply.engine_died(error.message)

    def _run(self, engine: Engine) -> None:
        with engine, self._putting_away():
            completions = engine.generate(self._supply)
            while True:
                with self._stop.interruptible():
                    completion = next(completions, None)
                if completion is None:
                    return
                self._take(completion)

    def _take(self, completion: Completion) -> None:
        if self._supply.accept(completion):
            self._num_rows += 1
            self._on_completion(completion)
            self._publisher.add(completion)
            self._supply.settle(completion.chunk)
            self._limit.add([(completion.status, completion.error)])

    def _on_idle(self) -> None:
        self._heart.check()
        self._publisher.flush_due()

    @contextlib.contextmanager
    def _putting_away(self) -> Generator[None]:
        """On an error or a request to stop: rows to disk and claims back, before all else."""
        try:
            yield
        except EngineDiedError:
            self._publisher.flush()
            raise
        except BaseException:
            try:
                self._publisher.flush()
            finally:
                self._claims.close()
            raise


class _Heart:
    """Says every few seconds that a worker lives, from a thread of its own."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: StoreError | None = None
        self._failing_since = 0.0

    def check(self) -> None:
        """Raise StoreError where it could not be said for as long as a claim lasts."""
        error = self._error
        if error is not None and time.monotonic() - self._failing_since > self._claims.timeout_s:
            raise error

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._end.wait(self._claims.beat_every_s):
            try:
                self._claims.beat()
            except StoreError as error:
                if self._error is None:
                    self._failing_since = time.monotonic()
                self._error = error
            else:
                self._error = None
