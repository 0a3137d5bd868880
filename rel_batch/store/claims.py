"""Who works on which chunk: names in a run's `claims/`, without a server, a port or a lock.

    claims/worker-<id>.json         who the worker is; touched every few seconds: its heartbeat
    claims/chunk-00012/worker-<id>  this worker works on chunk 12; an empty folder is nobody's
    claims/flight-<id>              what the worker has in its engine (flight.py)

    with Claims(run.path, timeout_s=120.0) as claims:
        if claims.claim(12):
            ...
            claims.release(12)

A folder that already holds the claimer's name is renamed to `chunk-00012`. rename(2) is atomic on
NFS and Lustre as well; it fails where somebody's name is in there, and takes the place of an empty
folder. A claim is taken over when its worker's heartbeat is older than `timeout_s`, or at once
where the worker ran on this machine and its process is gone: who manages to unlink the dead
worker's name may claim the chunk like any other. So each step has one winner, and a worker that
dies between two of them leaves nothing that would have to be mended.

Times are those of the file system that holds the run (`FileClock`), never of the machine.
Surprising: a worker that was suspended for longer than `timeout_s` cannot know whether it still
has its chunks, so it looks (`beat`), and `holds` is False for those that it lost. What it publishes
before it looks is harmless: readers take the first of two rows of one request.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from rel_batch.errors import StoreError
from rel_batch.store.disk import disk_errors, file_names, make_folder, writing
from rel_batch.store.flight import End, Flight, bury
from rel_batch.store.machine import has_ended, this_process

CLAIMS = "claims"
_CHUNK = re.compile(r"chunk-(\d{5,9})", re.ASCII)
_ID = r"worker-([A-Za-z0-9][A-Za-z0-9_-]*)"
_CLAIM = re.compile(_ID, re.ASCII)
_WORKER = re.compile(_ID + r"\.json", re.ASCII)


class FileClock:
    """The time as the file system has it: what it writes beside a file that is touched now."""

    def touch(self, file: Path) -> float:
        """Make `file` as new as anything can be, and give the time. Raises OSError."""
        os.utime(file)  # without a time of ours: a network file system takes its server's
        return self.time_of(file)

    def time_of(self, path: Path) -> float:
        """When `path` was touched last. Raises OSError."""
        # NFS answers stat() from memory, for up to a minute, but not after open().
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """What is known of a worker.

    Attributes:
        worker: its id, unique among all workers of all times.
        heartbeat_age_s: since it was last heard of, by the file system's clock.
        info: what it says of itself: host, pid, started (UTC, ISO 8601), and whatever its
            launcher adds.
    """

    worker: str
    heartbeat_age_s: float
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """Who has a chunk, and for how long already."""

    chunk: int
    worker: str
    age_s: float


@dataclass(frozen=True, slots=True)
class Survey:
    """All workers and claims at one moment, those of the dead included."""

    workers: tuple[WorkerRecord, ...]
    claims: tuple[ClaimRecord, ...]


def new_worker_id() -> str:
    """An id for a worker: short, readable, and never given twice."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-")[:24] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


def file_system_now(run_path: Path) -> float:
    """The time by the clock of the file system, or the machine's where nothing can be written."""
    probe = run_path / f".clock-{secrets.token_hex(6)}.tmp"
    try:
        probe.touch()
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)
    except OSError:
        return time.time()


def read_survey(run_path: Path, *, now: float, clock: FileClock | None = None) -> Survey:
    """All workers and claims, for whoever watches. `now` is `file_system_now`'s. Only reads."""
    clock = clock or FileClock()
    folder = run_path / CLAIMS
    workers: list[WorkerRecord] = []
    claims: list[ClaimRecord] = []
    for name in sorted(file_names(folder)):
        # Whatever goes away while it is looked at was not there.
        with contextlib.suppress(OSError):
            if found := _WORKER.fullmatch(name):
                age_s = max(0.0, now - clock.time_of(folder / name))
                workers.append(WorkerRecord(found[1], age_s, _info(folder / name)))
            elif found := _CHUNK.fullmatch(name):
                owner = _owner(folder / name)
                if owner is not None:
                    age_s = max(0.0, now - _claim_file(folder / name, owner).stat().st_mtime)
                    claims.append(ClaimRecord(int(found[1]), owner, age_s))
    return Survey(tuple(workers), tuple(claims))


def release_dead(run_path: Path, worker: str, end: End | None = None) -> None:
    """Give back what a worker had that is known to have ended.

    `end` says how, where what it had in its engine may have to do with it. Raises StoreError.
    """
    folder = run_path / CLAIMS
    with disk_errors("clear", folder):
        # First, so that whoever claims its chunks next knows.
        bury(folder, worker, end)
        for name in file_names(folder):
            if _CHUNK.fullmatch(name):
                _release(folder / name, worker)
        (folder / f"worker-{worker}.json").unlink(missing_ok=True)
        shutil.rmtree(folder / f".claim-{worker}.tmp", ignore_errors=True)


class Claims:
    """One worker's claims. A context manager: on the way out nothing is left behind.

    `claim`, `release` and `beat` may be called from several threads.
    """

    def __init__(
        self,
        run_path: Path,
        *,
        timeout_s: float,
        worker: str | None = None,
        info: Mapping[str, Any] | None = None,
        clock: FileClock | None = None,
    ) -> None:
        """Join the run's workers. `info` is told to whoever watches. Raises StoreError."""
        self.worker = worker or new_worker_id()
        self.timeout_s = timeout_s
        self._run_path = run_path
        self._folder = run_path / CLAIMS
        self._clock = clock or FileClock()
        self._info = {"worker": self.worker, **this_process(), **(info or {})}
        self._lock = threading.RLock()
        self._held: set[int] = set()
        self._closed = False
        self._file = self._folder / f"worker-{self.worker}.json"
        self._prepared = self._folder / f".claim-{self.worker}.tmp"
        self.flight = Flight(self._folder, self.worker)
        self._appear()
        self._beaten = self._beat_file()

    # What others do.

    def present(self) -> tuple[frozenset[int], int]:
        """The chunks that somebody seems to have, and how many workers there seem to be.

        From one listing: claims and workers that have died are among them until they are found
        out. Raises StoreError.
        """
        chunks: set[int] = set()
        num_workers = 0
        for name in file_names(self._folder):
            # Looked at before it is matched: a thousand workers have thousands of names here.
            if name.startswith("chunk-"):
                if found := _CHUNK.fullmatch(name):
                    chunks.add(int(found[1]))
            elif name.startswith("worker-") and _WORKER.fullmatch(name):
                num_workers += 1
        return frozenset(chunks), max(num_workers, 1)

    def owner(self, chunk: int) -> str | None:
        """The worker that has `chunk`; None where it is free. Raises StoreError."""
        with disk_errors("read", self._chunk(chunk)):
            return _owner(self._chunk(chunk))

    # What this worker does.

    def claim(self, chunk: int) -> bool:
        """Get `chunk`, from nobody or from a worker that has died. Raises StoreError."""
        with self._lock, disk_errors("claim", self._chunk(chunk)):
            # Noted first: what is interrupted after the rename is then still given back.
            self._held.add(chunk)
            if self._place(chunk) or (self._evict(chunk) and self._place(chunk)):
                return True
            self._held.discard(chunk)
            return False

    def holds(self, chunk: int) -> bool:
        """Whether this worker still has `chunk`, as far as it knows."""
        with self._lock:
            return chunk in self._held

    def release(self, chunk: int) -> None:
        """Give `chunk` back. Raises StoreError."""
        with self._lock, disk_errors("release", self._chunk(chunk)):
            self._held.discard(chunk)
            _release(self._chunk(chunk), self.worker)

    def beat(self) -> frozenset[int]:
        """Say that this worker lives, and give the chunks that it lost because it was late.

        Raises StoreError where the file system cannot be reached; then it was not said.
        """
        with self._lock, disk_errors("touch", self._file):
            if self._closed:
                return frozenset()
            before = self._beaten
            try:
                self._beaten = self._beat_file()
            except FileNotFoundError:  # somebody has cleared claims/
                self._appear()
                self._beaten = self._beat_file()
            else:
                if self._beaten - before <= self.timeout_s:
                    return frozenset()
            lost = {c for c in self._held if not _claim_file(self._chunk(c), self.worker).exists()}
            self._held -= lost
            return frozenset(lost)

    def sweep(self) -> None:
        """Clear away all that the dead have left. Costs a look at each worker and each claim.

        Raises StoreError.
        """
        with self._lock, disk_errors("clear", self._folder):
            for name in file_names(self._folder):
                if found := _WORKER.fullmatch(name):
                    file = self._folder / name
                    if found[1] != self.worker and self._is_dead(found[1], file):
                        # A machine that went silent is no request's fault.
                        end: End | None = "killed" if has_ended(_info(file)) else None
                        release_dead(self._run_path, found[1], end)
                elif _CHUNK.fullmatch(name):
                    owner = _owner(self._folder / name)
                    if owner is None:
                        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                            self._clear_ownerless(self._folder / name)
                    elif owner != self.worker and self._is_dead(owner, self._folder / name):
                        _release(self._folder / name, owner)

    def close(self) -> None:
        """Give everything back and leave. Raises StoreError."""
        with self._lock, disk_errors("clear", self._folder):
            self._closed = True
            for chunk in self._held:
                _release(self._chunk(chunk), self.worker)
            self._held.clear()
            self.flight.close()
            self._file.unlink(missing_ok=True)
            shutil.rmtree(self._prepared, ignore_errors=True)
            # The last one out takes the folder with it.
            with contextlib.suppress(OSError):
                self._folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except StoreError:
            # What went wrong first is what a person must hear of; a claim that stays times out.
            if error is None:
                raise

    def _chunk(self, chunk: int) -> Path:
        return self._folder / f"chunk-{chunk:05d}"

    def _appear(self) -> None:
        make_folder(self._folder)
        with writing(self._file, replace=True) as file:
            file.write(json.dumps(self._info, default=str).encode())

    def _beat_file(self) -> float:
        return self._clock.touch(self._file)

    def _place(self, chunk: int) -> bool:
        """Rename a folder with this worker's name in it to the chunk's; False if it is taken."""
        for _ in range(2):
            self._prepare()
            try:
                self._prepared.rename(self._chunk(chunk))
            except FileNotFoundError:  # the worker was late, or somebody has cleared claims/
                # NFS may lose the answer to a rename that was made, and then finds nothing.
                if _claim_file(self._chunk(chunk), self.worker).exists():
                    return True
                self._appear()
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return False
                if error.errno == errno.ENOTDIR:
                    raise StoreError(
                        f"{self._chunk(chunk)} is a file; a claim is a folder",
                        hint="Remove it: rel-batch has not written it.",
                    ) from error
                raise
            else:
                # A rename keeps the time at which the folder was made.
                self._clock.touch(_claim_file(self._chunk(chunk), self.worker))
                return True
        return False

    def _prepare(self) -> None:
        try:
            self._prepared.mkdir(exist_ok=True)
        except FileNotFoundError:
            self._appear()
            self._prepared.mkdir(exist_ok=True)
        _claim_file(self._prepared, self.worker).touch()

    def _evict(self, chunk: int) -> bool:
        """Whether the chunk was free, or its worker dead and this one the first to see it."""
        folder = self._chunk(chunk)
        try:
            owner = _owner(folder)
            if owner is None:
                return self._clear_ownerless(folder)
            if owner == self.worker:
                return False
            if not self._is_dead(owner, folder):
                return False
            _claim_file(folder, owner).unlink()
        except FileNotFoundError:
            return False  # another one was faster
        return True

    def _is_dead(self, worker: str, seen_at: Path) -> bool:
        """Whether a worker was not heard of for too long, or is known to be gone.

        `seen_at` is a sign of life beside its heartbeat, which a network file system may show late.
        """
        file = self._folder / f"worker-{worker}.json"
        if has_ended(_info(file)):
            return True
        newest = 0.0
        for sign in (file, seen_at, _claim_file(seen_at, worker)):
            with contextlib.suppress(OSError):
                newest = max(newest, self._clock.time_of(sign))
        if newest > self._beaten - self.timeout_s:
            return False
        # Measured from a beat that may be old itself, a worker looks younger than it is, never
        # older; so only now is a new beat worth its cost.
        return self._clock.touch(self._file) - newest > self.timeout_s

    def _clear_ownerless(self, folder: Path) -> bool:
        """Make a folder that holds no worker's name free: at once if empty, else when it is old."""
        names = os.listdir(folder)
        if not names:
            return True
        now = self._clock.touch(self._file)
        if now - self._clock.time_of(folder) <= self.timeout_s:
            return False
        # Somebody's files (a file manager's, an editor's): set aside, not deleted.
        folder.rename(self._folder / f".stray-{secrets.token_hex(6)}")
        return True


def _claim_file(folder: Path, worker: str) -> Path:
    return folder / f"worker-{worker}"


def _owner(folder: Path) -> str | None:
    """The worker whose name is in a chunk's folder. Raises OSError."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # A file that NFS keeps for somebody who still reads it, or that a person left, is no worker.
    return next((found[1] for name in sorted(names) if (found := _CLAIM.fullmatch(name))), None)


def _release(folder: Path, worker: str) -> None:
    # Only this worker's own name, and the folder only where that leaves it empty: the claim of
    # another one is never touched.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _claim_file(folder, worker).unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()


def _info(file: Path) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
