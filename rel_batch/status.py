"""How far a run is: chunks, claims, rows, speed, what is left and the disk. Only files are read.

    watcher = Watcher(RunFolder.open(path))
    watcher.look()   ->  RunStatus(num_rows=512_000, tokens_per_s=11_800.0, eta_s=9_070.0, ...)

Works on any machine that sees the folder, while the run goes on, and when it is over. A watcher
remembers what it has read, so that looking again costs only what is new.

The speed now is that of the last two minutes that each living worker has published; the average is
over the time in which there was any worker. What is left is weighed: an unfinished request is
taken to need what those of its task and arm needed on average, a generated token counting as eight
of the prompt, since the first chunks of a plan are the costliest.

Surprising: ages are the file system's times seen from this machine's clock, because asking the
file system for its time would mean to write. Who takes over a claim does ask it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rel_batch.plan import COST_OF_OUTPUT_TOKEN
from rel_batch.records import STATUSES
from rel_batch.store import FileGoneError, RunFolder
from rel_batch.store.parts import merged_number
from rel_batch.store.survey import Survey, read_survey
from rel_batch.store.tally import Tally
from rel_batch.store.work import Work

# "Now" is the last so many seconds that a worker has published, if that is not longer ago than
# three times as much.
_NOW_S = 120.0
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker that is there, or that has published something.

    Attributes:
        state: "alive"; "late" where its heartbeat is so old that its claims may be taken over;
            "gone" where it has left.
        heartbeat_age_s: since its last sign of life; None where it has left.
        claims: the chunks that it works on, with the seconds since it claimed each.
        tokens_per_s_now, tokens_per_s: output tokens, lately and on average.
    """

    worker: str
    state: str
    heartbeat_age_s: float | None
    claims: Mapping[int, float]
    num_rows: int
    tokens_per_s_now: float
    tokens_per_s: float
    host: str
    pid: int | None
    started: str


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """Chunks whose requests all have rows, that somebody works on, and that wait."""

    done: int
    claimed: int
    waiting: int


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes of a run's files, and what its file system has left.

    `needed` is an estimate of what the missing rows will take; None where there are none yet.
    """

    completions: int
    scores: int
    other: int
    free: int
    needed: int | None


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run at one moment.

    Attributes:
        at: seconds since 1970.
        statuses: rows by their status, each status that occurs.
        share_done: of the work, not of the rows.
        eta_s: seconds until the last row at the speed of now; None where nothing moves.
    """

    run: str
    at: float
    num_requests: int
    num_rows: int
    statuses: Mapping[str, int]
    share_done: float
    chunks: ChunkCounts
    workers: tuple[WorkerStatus, ...]
    tokens_per_s_now: float
    tokens_per_s: float
    eta_s: float | None
    disk: DiskUse

    @property
    def complete(self) -> bool:
        return self.num_rows >= self.num_requests


class Watcher:
    """Looks at one run again and again."""

    def __init__(self, run: RunFolder) -> None:
        """Read what was planned. Raises StoreError."""
        self._run = run
        self._planned: Counter[int] = Counter()
        self._planned_groups: Counter[tuple[str, str]] = Counter()
        for chunks, tasks, arms in run.read_request_columns("chunk", "task", "arm"):
            self._planned.update(chunks)
            self._planned_groups.update(zip(tasks, arms, strict=True))
        self._read: set[Path] = set()
        # The keys that have a row, of chunks that are not finished.
        self._keys: defaultdict[int, set[str]] = defaultdict(set)
        self._done: set[int] = set()
        self._tally = Tally()
        self._intervals: defaultdict[str, list[Work]] = defaultdict(list)
        store: Mapping[str, Any] = run.manifest.get("config", {}).get("store", {})
        self._timeout_s = float(store.get("claim_timeout_s", _TIMEOUT_S))

    def look(self, now: float | None = None) -> RunStatus:
        """The run as it is now. Raises StoreError where its folder cannot be read."""
        self._read_new_files()
        now = time.time() if now is None else now
        survey = read_survey(self._run.path, now=now)
        workers = tuple(self._workers(survey, now))
        num_requests = sum(self._planned.values())
        claimed = {claim.chunk for claim in survey.claims} & self._planned.keys() - self._done
        work_left, work_done = self._work_left()
        alive = [worker.worker for worker in workers if worker.state == "alive"]
        speed = sum(self._lately(worker, now, _work_of) for worker in alive)
        num_done = len(self._done)
        return RunStatus(
            run=self._run.path.resolve().name,
            at=now,
            num_requests=num_requests,
            num_rows=self._tally.num_rows,
            statuses={s: n for s in STATUSES if (n := self._tally.statuses[s])},
            share_done=work_done / (work_done + work_left) if work_done else 0.0,
            chunks=ChunkCounts(
                num_done, len(claimed), len(self._planned) - num_done - len(claimed)
            ),
            workers=workers,
            tokens_per_s_now=sum(worker.tokens_per_s_now for worker in workers),
            tokens_per_s=self._tally.num_output_tokens / max(self._active_s(), 1e-9)
            if self._intervals
            else 0.0,
            eta_s=0.0 if not work_left else work_left / speed if speed else None,
            disk=self._disk(num_requests - self._tally.num_rows),
        )

    def _read_new_files(self) -> None:
        for path in self._run.list_parts().files:
            if path in self._read:
                continue
            # What is gone was merged into another file, which the next look finds.
            with contextlib.suppress(FileGoneError):
                work = self._tally.read(path, self._is_new)
                self._read.add(path)
                for worker, done in work.items():
                    self._note(worker, done, merged=merged_number(path.name) is not None)

    def _note(self, worker: str, done: Work, *, merged: bool) -> None:
        known = self._intervals[worker]
        if not merged:
            known.append(done)
        # A merged file tells of all work that went into it, most of which was noted from its parts.
        elif sum(part.num_rows for part in known) < done.num_rows:
            known[:] = [done]

    def _is_new(self, chunk: int, key: str) -> bool:
        if chunk in self._done:
            return False
        keys = self._keys[chunk]
        if key in keys:
            return False
        keys.add(key)
        if len(keys) >= self._planned.get(chunk, sys.maxsize):
            self._done.add(chunk)
            del self._keys[chunk]
        return True

    def _work_left(self) -> tuple[float, float]:
        """Of what is missing and of what is done, in prompt tokens."""
        done = {
            group: tokens.prompt + COST_OF_OUTPUT_TOKEN * tokens.output
            for group, tokens in self._tally.groups.items()
        }
        total, num_rows = sum(done.values()), max(self._tally.num_rows, 1)
        left = 0.0
        for group, planned in self._planned_groups.items():
            found = self._tally.groups.get(group)
            num_found = found.num_rows if found else 0
            mean = done[group] / num_found if num_found else max(total / num_rows, 1.0)
            left += mean * max(planned - num_found, 0)
        return left, total

    def _workers(self, survey: Survey, now: float) -> Iterator[WorkerStatus]:
        claims: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for claim in survey.claims:
            claims[claim.worker][claim.chunk] = claim.age_s
        there = {worker.worker: worker for worker in survey.workers}
        for name in sorted({*there, *claims, *self._intervals}):
            record = there.get(name)
            age_s = None if record is None else record.heartbeat_age_s
            state = "gone"
            if age_s is not None:
                state = "alive" if age_s <= self._timeout_s else "late"
            elif claims[name]:
                state = "late"
            work = self._intervals.get(name, [])
            span_s = sum(_union((done.started, done.ended) for done in work))
            info: Mapping[str, Any] = record.info if record else {}
            pid = info.get("pid")
            yield WorkerStatus(
                worker=name,
                state=state,
                heartbeat_age_s=age_s,
                claims=claims[name],
                num_rows=sum(done.num_rows for done in work),
                tokens_per_s_now=self._lately(name, now, _tokens_of) if state == "alive" else 0.0,
                tokens_per_s=sum(done.num_output_tokens for done in work) / max(span_s, 1e-9)
                if work
                else 0.0,
                host=str(info.get("host", "")),
                pid=pid if isinstance(pid, int) else None,
                started=str(info.get("started", "")),
            )

    def _lately(self, worker: str, now: float, amount: Callable[[Work], int]) -> float:
        """What a worker has published of late, a second; 0 where it was long ago."""
        work = self._intervals.get(worker)
        if not work:
            return 0.0
        end = max(done.ended for done in work)
        if now - end > 3 * _NOW_S:
            return 0.0
        start = max(end - _NOW_S, min(done.started for done in work))
        total = 0.0
        for done in work:
            span_s = max(done.ended - done.started, 1e-9)
            overlap_s = min(done.ended, end) - max(done.started, start)
            total += amount(done) * min(max(overlap_s, 0.0) / span_s, 1.0)
        return total / max(end - start, 1e-9)

    def _active_s(self) -> float:
        """Seconds in which there was a worker."""
        spans = [
            (min(done.started for done in work), max(done.ended for done in work))
            for work in self._intervals.values()
            if work
        ]
        return sum(_union(spans))

    def _disk(self, num_missing: int) -> DiskUse:
        sizes: Counter[str] = Counter()
        for path in _files(self._run.path):
            with contextlib.suppress(OSError):
                sizes[path.relative_to(self._run.path).parts[0]] += path.stat().st_size
        completions, scores = sizes.pop("completions", 0), sizes.pop("scores", 0)
        num_rows = self._tally.num_rows
        return DiskUse(
            completions=completions,
            scores=scores,
            other=sum(sizes.values()),
            free=shutil.disk_usage(self._run.path).free,
            needed=(completions + scores) * num_missing // num_rows if num_rows else None,
        )


def _tokens_of(done: Work) -> int:
    return done.num_output_tokens


def _work_of(done: Work) -> int:
    return done.num_prompt_tokens + COST_OF_OUTPUT_TOKEN * done.num_output_tokens


def _union(spans: Iterable[tuple[float, float]]) -> Iterator[float]:
    """The lengths of the stretches of time that the spans cover together."""
    start = end = None
    for first, last in sorted(spans):
        if start is None or end is None:
            start, end = first, last
        elif first > end:
            yield end - start
            start, end = first, last
        else:
            end = max(end, last)
    if start is not None and end is not None:
        yield end - start


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, as far as they can be listed."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)
