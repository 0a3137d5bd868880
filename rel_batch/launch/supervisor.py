"""Several workers of one machine, each a process of its own, and the one process that watches them.

    with Supervisor(config, places(config, None, os.environ), progress, stop, limit) as supervisor:
        supervisor.start_early(20_000)     # where planning takes long: engines start meanwhile
        setup = ...
        supervisor.run(setup)

A worker is `rel-batch join RUN`, told its place, the settings, and when the run is planned; it
speaks through the run folder alone. The supervisor reads the parts that appear there, has them
scored, shows them, and counts failures. A worker that is killed gets its claims back into the pool
at once, and a successor after a pause that grows while nothing is gained; one that ends with an
error of its own is not started again, and its error is that of the run when no other worker is
left.

Surprising: a terminal's Ctrl-C reaches this process alone, since each worker leads a process group,
and is passed on. When this process is killed, the kernel kills the workers (engine/process.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rel_batch.config import RunConfig
from rel_batch.engine.process import become_parent
from rel_batch.errors import (
    EXIT_INCOMPLETE,
    EXIT_OK,
    ConfigError,
    DataError,
    EngineError,
    LaunchError,
    RelBatchError,
    StoreError,
)
from rel_batch.launch.background import ScoreInBackground, background_scoring
from rel_batch.launch.devices import Place
from rel_batch.launch.progress import Progress
from rel_batch.launch.setup import Setup
from rel_batch.store import make_folder
from rel_batch.store.claim_files import release_dead
from rel_batch.store.claims import new_worker_id
from rel_batch.store.disk import FileGoneError
from rel_batch.store.flight import End
from rel_batch.worker import FailureLimit, Stop

_LOOK_EVERY_S = 0.5
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
# One more than it takes to find and quarantine a request that ends its worker (worker/deaths.py).
_MOST_KILLS = 6
# How a process ends by a fault of its own. SIGKILL may be one, too: it used up the memory.
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
# A worker that was asked to stop publishes at once, but its engine may take its time to end.
_STOPS_WITHIN_S = 45.0
_NOT_SHOWN = ("output_token_ids", "thought", "token_logprobs", "token_ranks", "option_logprobs")
_ERRORS: Mapping[int, type[RelBatchError]] = {
    kind.exit_code: kind for kind in (ConfigError, DataError, StoreError, EngineError, LaunchError)
}


@dataclass
class _Slot:
    """One place and the worker in it, one after another.

    Attributes:
        kills: how many of its workers were killed since a row was gained.
        starts_at: when the next one starts (monotonic); None for never.
    """

    place: Place
    log_file: Path
    worker: str = ""
    process: subprocess.Popen[bytes] | None = None
    log_start: int = 0
    kills: int = 0
    starts_at: float | None = field(default_factory=time.monotonic)


class Supervisor:
    """Runs the workers of one machine until the run is complete."""

    def __init__(
        self,
        config: RunConfig,
        places: Sequence[Place],
        progress: Progress,
        stop: Stop,
        limit: FailureLimit,
    ) -> None:
        self._config = config
        self._path = config.folder
        self._progress = progress
        self._stop = stop
        self._limit = limit
        self._logs = self._path / "logs"
        self._slots = [_Slot(p, self._logs / f"worker-{n}.log") for n, p in enumerate(places)]
        self._errors: list[RelBatchError] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()

    def start_early(self, max_model_len: int) -> None:
        """Start workers before the run is planned: their engines with this context. Raises
        RelBatchError."""
        become_parent()
        make_folder(self._logs, parents=True)
        for slot in self._slots:
            self._start(slot, max_model_len)

    def run(self, setup: Setup) -> None:
        """Raises StopRequested and RelBatchError; no worker outlives this call."""
        become_parent()
        make_folder(self._logs)
        self._run = setup.run
        self._seen = set(setup.run.list_parts().published)
        self._progress.begin(setup.index.num_requests, setup.index.num_requests - setup.num_missing)
        self._progress.say(f"{len(self._slots)} workers; what they say is in {self._logs}")
        for slot in self._slots:
            self._tell(slot, "the run is planned")
        try:
            with background_scoring(
                setup.run, self._config.scoring, self._progress.scored
            ) as scorer:
                try:
                    while self._look(scorer):
                        self._stop.sleep(_LOOK_EVERY_S)
                finally:
                    self._end_all()
                self._read_parts(scorer)
        finally:
            self._progress.end()
        if self._errors and setup.counted_again().num_missing:
            raise self._errors[0]

    def _look(self, scorer: ScoreInBackground) -> bool:
        """Start, bury and count; False when no worker is left that could do anything."""
        gained = self._read_parts(scorer)
        for slot in self._slots:
            if gained:
                slot.kills = 0
            if slot.process is not None and slot.process.poll() is not None:
                self._bury(slot)
            starts_at = slot.starts_at
            if slot.process is None and starts_at is not None and time.monotonic() >= starts_at:
                self._start(slot)
        return any(slot.process or slot.starts_at is not None for slot in self._slots)

    def _read_parts(self, scorer: ScoreInBackground) -> bool:
        """Show and have scored what was published since the last look; whether there was any."""
        gained = False
        for part in self._run.list_parts().published:
            if part in self._seen:
                continue
            self._seen.add(part)
            try:
                rows = list(self._run.read_part(part, omit=_NOT_SHOWN))
            except FileGoneError:
                continue  # merged meanwhile, and scored there
            gained = True
            for completion in rows:
                self._progress.completed(completion)
            scorer(part)
            self._limit.add([(row.status, row.error) for row in rows])
        scorer.report()
        return gained

    def _start(self, slot: _Slot, early_max_model_len: int | None = None) -> None:
        slot.worker, slot.starts_at = new_worker_id(), None
        command = [sys.executable, "-m", "rel_batch", "join", str(self._path)]
        command += ["--worker", slot.worker, "--supervised"]
        if slot.place.cpus:
            command += ["--cpus", ",".join(map(str, slot.place.cpus))]
        if early_max_model_len is not None:
            command += ["--early", str(early_max_model_len)]
        slot.log_start = slot.log_file.stat().st_size if slot.log_file.exists() else 0
        try:
            with slot.log_file.open("ab") as log:
                slot.process = subprocess.Popen(  # noqa: S603  (this program itself)
                    command,
                    env=slot.place.environment(self._config, os.environ),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )
        except OSError as error:
            raise LaunchError(f"cannot start a worker: {error}") from error
        # Settings that are no part of the run's identity may differ from those that it has stored.
        self._tell(slot, self._config.model_dump_json(exclude={"slurm"}))
        if early_max_model_len is None:
            self._tell(slot, "the run is planned")

    def _tell(self, slot: _Slot, line: str) -> None:
        """Write a line to a worker. One that has ended already is buried at the next look."""
        assert slot.process is None or slot.process.stdin is not None
        if slot.process is not None and slot.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                slot.process.stdin.write(f"{line}\n".encode())
                slot.process.stdin.flush()

    def _bury(self, slot: _Slot) -> None:
        assert slot.process is not None
        code = slot.process.returncode
        self._forget(slot, _end_of(code))
        if code in (EXIT_OK, EXIT_INCOMPLETE):
            return
        if code > 0:
            error = _read_error(code, slot)
            self._errors.append(error)
            self._progress.say(f"worker {slot.worker} ended: {error.message}")
            return
        slot.kills += 1
        name = signal.Signals(-code).name
        if slot.kills >= _MOST_KILLS:
            self._errors.append(
                LaunchError(
                    f"worker {slot.worker} was killed by {name}, the {slot.kills}th in a row "
                    "without a new row",
                    hint=f"what it said last is in {slot.log_file}; SIGKILL often means that the "
                    "machine's memory was used up",
                )
            )
            self._progress.say(self._errors[-1].message)
            return
        pause_s = min(_FIRST_PAUSE_S * 2 ** (slot.kills - 1), _LONGEST_PAUSE_S)
        slot.starts_at = time.monotonic() + pause_s
        self._progress.say(
            f"worker {slot.worker} was killed by {name}; another one starts in {pause_s:.0f} s"
        )

    def _end_all(self) -> None:
        """Ask all workers to stop, and see to it that they are gone."""
        running = [slot for slot in self._slots if slot.process is not None]
        for slot in running:
            assert slot.process is not None
            if slot.process.poll() is None:
                slot.process.terminate()
        deadline = time.monotonic() + _STOPS_WITHIN_S
        for slot in running:
            assert slot.process is not None
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    slot.process.wait(max(0.0, deadline - time.monotonic()))
            finally:
                self._forget(slot)

    def _forget(self, slot: _Slot, end: End | None = None) -> None:
        """See to it that a worker is gone, and give back what it had."""
        process, slot.process = slot.process, None
        assert process is not None
        _kill_group(process.pid)
        process.wait()
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        release_dead(self._path, slot.worker, end)


def _end_of(code: int) -> End | None:
    """What the end of a worker may have to do with what it ran."""
    if -code in _CRASHES:
        return "crashed"
    return "killed" if -code == signal.SIGKILL else None


def _kill_group(group: int) -> None:
    """Kill what is left of a worker's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _read_error(code: int, slot: _Slot) -> RelBatchError:
    """The error that a worker has printed last, as this process would raise it."""
    with slot.log_file.open("rb") as log:
        log.seek(slot.log_start)
        lines = log.read().decode(errors="replace").splitlines()
    at = max((n for n, line in enumerate(lines) if line.startswith("error: ")), default=None)
    if at is None:
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return LaunchError(
            f"a worker ended with exit code {code}: {last}", hint=f"see {slot.log_file}"
        )
    message = "\n".join(lines[at:]).removeprefix("error: ")
    message, _, hint = message.partition("\nhint: ")
    return _ERRORS.get(code, LaunchError)(message, hint=hint or None)
