"""What a worker's engine is given: one endless stream over all the chunks that it gets.

    for completion in engine.generate(supply):   # Request, or None: nothing at the moment
        if supply.accept(completion): ...

The next chunk is claimed when the requests of the one before are all handed out, long before they
are finished, so an engine never drains between two chunks. How far a worker claims ahead is
`wants_more`: as much as its engine takes while there is plenty, and less and less as the free
chunks run out, so that nobody holds work at the end that another could have begun. A worker that
gets nothing waits, because others may die, and ends when every request has a row.

Requests that were in an engine when it died are handed out again a few at a time; those that were
there at two deaths, of an engine or of a worker, alone; and one that an engine died of alone, or
that took its worker with it, becomes an `engine_error` (deaths.py).

Surprising: nothing is asked of anybody. Who works on what is seen in the file system alone, and may
have changed since; the worst that comes of it is a request that is run twice.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rel_batch.engine import failed_completion
from rel_batch.records import Completion, PlannedRequest, Request
from rel_batch.store import RunFolder
from rel_batch.store.chunks import ChunkSize, count_finished_of
from rel_batch.store.claims import Claims
from rel_batch.store.parts import Parts
from rel_batch.worker.deaths import Deaths
from rel_batch.worker.publisher import Publisher
from rel_batch.worker.stopping import Stop

# Of requests that were in an engine when it died, so many are tried again at a time.
_CAUTIOUS = 16
# Looking again when nothing was free: after so many seconds, then after more and more.
_FIRST_LOOK_S = 0.05
_LAST_LOOK_S = 5.0
# All that wait together look no oftener than this: a look reads the whole folder of claims.
_MOST_LOOKS_PER_S = 64
# Looking again when this worker had enough, if not before: others may have left or died.
_ENOUGH_S = 30.0
# How long a list of the published parts is believed.
_BELIEVED_S = 5.0
# Of how many held chunks it is asked whether their workers have died: at each claim, so that a big
# one is not found only at the very end, and when nothing is free.
_HELD_ASKED = 4
_HELD_ASKED_IDLE = 32


def wants_more(held_cost: float, free_cost: float, num_workers: int) -> bool:
    """Whether a worker that holds unfinished work should claim another chunk.

    Alone it always does. With others it stops where what it holds is more than its share of what
    is free: so at the end all hold about the same, and about as much is free as they hold.
    """
    return held_cost <= 0 or held_cost * (num_workers - 1) < free_cost


@dataclass(slots=True)
class _Open:
    """A chunk that this worker has claimed.

    Attributes:
        to_hand: its requests that the engine was not given yet, in order.
        unfinished: the keys of all of its requests that have no row yet.
    """

    cost: float
    to_hand: deque[PlannedRequest]
    unfinished: set[str]
    num_requests: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_requests = max(len(self.unfinished), 1)

    @property
    def held_cost(self) -> float:
        return self.cost * len(self.unfinished) / self.num_requests


class Supply(Iterator[Request | None]):
    """The requests of one worker, for one engine after another."""

    def __init__(
        self,
        run: RunFolder,
        todo: Mapping[int, ChunkSize],
        claims: Claims,
        deaths: Deaths,
        stop: Stop,
        *,
        materialise: Callable[[PlannedRequest], Request],
        max_model_len: int,
        on_row: Callable[[Completion], None],
        on_idle: Callable[[], None],
        publisher: Publisher,
    ) -> None:
        """`todo` are the chunks that had something missing when counted; `on_row` is given
        rows that need no engine; `on_idle` is called often."""
        self._run = run
        self._claims = claims
        self._deaths = deaths
        self._stop = stop
        self._materialise = materialise
        self._max_model_len = max_model_len
        self._on_row = on_row
        self._on_idle = on_idle
        self._publisher = publisher
        self._todo = dict(todo)
        self._open: dict[int, _Open] = {}
        self._in_flight: dict[str, Request] = {}
        self._suspects: deque[Request] = deque()
        self._cautious: deque[Request] = deque()
        self._alone: str | None = None
        self._next: deque[Request] = deque()
        self._parts: Parts | None = None
        self._listed = 0.0
        self._known_parts: dict[int, tuple[Path, ...]] = {}
        self._look_after_s = 0.0
        self._looked = 0.0
        # What was free at the last look, when that was less than enough to claim more; and for how
        # many workers.
        self._enough: tuple[float, int] | None = None

    # For the engine.

    def __next__(self) -> Request | None:
        """The next request; None where there is nothing to hand out now. Raises StoreError."""
        with self._stop.shielded():
            self._on_idle()
        request = self._next.popleft() if self._next else self._find()
        if request is not None:
            key = request.planned.key
            self._in_flight[key] = request
            self._claims.flight.enter(key, alone=key == self._alone)
        elif not self._in_flight:
            if not self._todo:
                raise StopIteration
            # Nobody has anything to do meanwhile.
            pause_s = self._looked + self._look_after_s - time.monotonic()
            self._stop.sleep(min(max(0.0, pause_s), _LAST_LOOK_S))
        return request

    def is_over(self) -> bool:
        """Wait until there is something for an engine to do, or nothing will be any more."""
        while True:
            request = next(self, _OVER)
            if isinstance(request, Request):
                del self._in_flight[request.planned.key]
                self._claims.flight.leave(request.planned.key)
                self._next.appendleft(request)
                return False
            if request is _OVER:
                return True

    def accept(self, completion: Completion) -> bool:
        """Whether a row counts: a row of a chunk that was lost meanwhile does not."""
        key, chunk = completion.request_key, completion.chunk
        self._in_flight.pop(key, None)
        self._claims.flight.leave(key)
        if key == self._alone:
            self._alone = None
        held = self._open.get(chunk)
        if held is None or key not in held.unfinished or not self._keep(chunk):
            return False
        held.unfinished.discard(key)
        return True

    def settle(self, chunk: int) -> None:
        """Release a chunk whose last row was accepted."""
        held = self._open.get(chunk)
        if held is not None and not held.unfinished:
            self._publisher.publish(chunk)
            del self._open[chunk]
            self._todo.pop(chunk, None)
            self._claims.release(chunk)
            self._look_after_s = 0.0

    def engine_died(self, reason: str) -> None:
        """Note what was in the engine when it died; it will be handed out again."""
        requests = list(self._in_flight.values())
        alone = self._alone is not None
        self._in_flight.clear()
        self._claims.flight.clear()
        self._alone = None
        if not requests:
            return
        keys = [request.planned.key for request in requests]
        self._deaths.record(keys, alone=alone, reason=reason, worker=self._claims.worker)
        self._cautious.extendleft(reversed(requests))

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight)

    # What comes next.

    def _find(self) -> Request | None:
        if self._alone is not None:
            return None
        while self._cautious:
            if len(self._in_flight) >= _CAUTIOUS:
                return None
            request = self._checked(self._cautious.popleft())
            if request is not None:
                return request
        if self._suspects:
            if self._in_flight:
                return None
            request = self._suspects.popleft()
            if not self._keep(request.planned.chunk):
                return None
            # What has finished must not be lost if this one takes the worker with it.
            with self._stop.shielded():
                self._publisher.flush()
            self._alone = request.planned.key
            return request
        while True:
            request = self._from_open_chunks()
            if request is not None:
                return request
            if self._suspects or not self._claim_next():
                return None

    def _from_open_chunks(self) -> Request | None:
        for chunk, held in list(self._open.items()):
            while held.to_hand and self._keep(chunk):
                request = self._checked(self._materialise(held.to_hand.popleft()))
                if request is not None:
                    return request
        return None

    def _checked(self, request: Request) -> Request | None:
        """The request if it can be run with others now; its row is made where it never can."""
        planned = request.planned
        if not self._keep(planned.chunk):
            return None
        if planned.num_context_tokens > self._max_model_len:
            reason = (
                f"{planned.num_prompt_tokens} prompt tokens, {planned.num_reserved_tokens} for a "
                f"thought and max_tokens {planned.max_tokens} do not fit max_model_len "
                f"{self._max_model_len}"
            )
            self._make_row(failed_completion(request, "too_long", reason))
        elif request.compiled is not None and request.compiled.problem is not None:
            problem = request.compiled.problem
            self._make_row(failed_completion(request, "constraint_rejected", problem))
        elif (reason := self._deaths.killed_by(planned.key)) is not None:
            self._make_row(failed_completion(request, "engine_error", reason))
        elif self._deaths.is_suspect(planned.key):
            self._suspects.append(request)
        else:
            return request
        return None

    def _make_row(self, completion: Completion) -> None:
        with self._stop.shielded():
            self._on_row(completion)

    # Chunks.

    def _claim_next(self) -> bool:
        """Whether another chunk was claimed and has something to do."""
        now = time.monotonic()
        if now < self._looked + self._look_after_s:
            # What is free becomes less and less, so there is no need to look before what this
            # worker holds has become less than its share of what was free.
            held_cost = sum(held.held_cost for held in self._open.values())
            if self._enough is None or not wants_more(held_cost, *self._enough):
                return False
        if self._enough is not None:
            self._enough, self._look_after_s = None, 0.0
        present, num_workers = self._claims.present()
        free = self._free(present)
        held_cost = sum(held.held_cost for held in self._open.values())
        free_cost = sum(self._todo[chunk].cost for chunk in free)
        if free and not wants_more(held_cost, free_cost, num_workers):
            self._looked, self._look_after_s = now, _ENOUGH_S
            self._enough = free_cost, num_workers
            return False
        others = [chunk for chunk in present if chunk in self._todo and chunk not in self._open]
        if self._claim_any(free, others, is_idle=held_cost <= 0):
            self._look_after_s = 0.0
            return True
        self._looked = time.monotonic()
        after_s = max(_FIRST_LOOK_S, 1.5 * self._look_after_s)
        most_s = max(_LAST_LOOK_S, num_workers / _MOST_LOOKS_PER_S)
        self._look_after_s = min(after_s, most_s) * random.uniform(0.8, 1.2)
        return False

    def _free(self, present: frozenset[int]) -> list[int]:
        """The chunks that nobody has, without those that others have finished meanwhile."""
        published = self._list().by_chunk
        free: list[int] = []
        for chunk in [chunk for chunk in self._todo if chunk not in present]:
            if chunk in published and self._is_finished(chunk):
                del self._todo[chunk]
            else:
                free.append(chunk)
        return free

    def _claim_any(self, free: list[int], others: list[int], *, is_idle: bool) -> bool:
        """Claim a chunk of a worker that has died, or a free one; failing that, a suspect's."""
        take_over = self._claims.take_over
        if free and self._claim_one(_some_of(others, _HELD_ASKED), take_over):
            return True
        if self._claim_one(free):
            return True
        # Only now: while there is something else to do, a suspect may yet come back.
        return is_idle and self._claim_one(
            _some_of(others, _HELD_ASKED_IDLE), partial(take_over, of_suspect=True)
        )

    def _claim_one(
        self, chunks: Iterable[int], take_over: Callable[[int], bool] | None = None
    ) -> bool:
        """Claim the first chunk that is to be had and unfinished.

        Where others are faster it goes on further and further back, so that a thousand workers
        that start in the same second do not all want the same chunk.
        """
        rest = deque(chunks)
        collisions = 0
        while rest:
            if take_over is None:
                rest.rotate(-random.randrange(min(2**collisions, len(rest))))
            chunk = rest.popleft()
            if self._is_finished(chunk):
                self._todo.pop(chunk, None)
                continue
            with self._stop.shielded():
                if not (take_over or self._claims.claim)(chunk):
                    collisions = min(collisions + 1, 20)
                    continue
                if self._begin(chunk):
                    return True
        return False

    def _begin(self, chunk: int) -> bool:
        """Open a chunk that was claimed; False where there is nothing left to do in it."""
        finished = self._run.finished_keys(chunk)
        missing = [r for r in self._run.iter_requests(chunk) if r.key not in finished]
        if not missing:
            self._todo.pop(chunk, None)
            self._claims.release(chunk)
            return False
        self._deaths.refresh()
        size = self._todo[chunk]
        share = len(missing) / max(size.num_requests, 1)
        self._open[chunk] = _Open(
            size.cost * share, deque(missing), {request.key for request in missing}
        )
        self._publisher.begin(chunk)
        return True

    def _is_finished(self, chunk: int) -> bool:
        """Whether others have finished a chunk, as far as can be seen without claiming it."""
        parts = self._list().of_chunk(chunk)
        if not parts or self._known_parts.get(chunk) == parts:
            return False
        self._known_parts[chunk] = parts
        num_finished = count_finished_of(chunk, parts)
        return num_finished >= self._todo[chunk].num_requests

    def _list(self) -> Parts:
        now = time.monotonic()
        if self._parts is None or now - self._listed > _BELIEVED_S:
            self._parts, self._listed = self._run.list_parts(), now
        return self._parts

    def _keep(self, chunk: int) -> bool:
        """Whether this worker still has the chunk; if not, all of it is forgotten."""
        if chunk not in self._open:
            return False
        if self._claims.holds(chunk):
            return True
        del self._open[chunk]
        self._publisher.drop(chunk)
        return False


def _some_of(chunks: list[int], most: int) -> list[int]:
    return random.sample(chunks, min(len(chunks), most))


_OVER = object()
