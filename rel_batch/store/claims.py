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

Whoever has nothing else to do need not wait for so long: a worker that has missed several beats is
a suspect (`suspect_after_s`), unless its process can be seen, and most suspects are dead. Taking a
chunk from one that lives loses no row: what it had not published of that chunk is made again.

Times are those of the file system that holds the run (`clock.py`), never of the machine.
Surprising: a worker that was suspended for longer than that cannot know whether it still has its
chunks, so it looks (`beat`), and `holds` is False for those that it lost. What it publishes before
it looks is harmless: readers take the first of two rows of one request.
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
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rel_batch.errors import StoreError
from rel_batch.store.claim_files import (
    CHUNK,
    CLAIMS,
    WORKER,
    claim_file,
    info_in,
    owner_of,
    release_claim,
    release_dead,
)
from rel_batch.store.clock import FileClock
from rel_batch.store.disk import disk_errors, file_names, make_folder, writing
from rel_batch.store.flight import End, Flight
from rel_batch.store.machine import has_ended, is_of_here, this_process

# How often a worker says that it lives, and how many beats it may miss before it is a suspect.
_BEAT_EVERY_S = 10.0
_BEATS_MISSED = 4


def new_worker_id() -> str:
    """An id for a worker: short, readable, and never given twice."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-")[:24] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


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
        self.beat_every_s = min(_BEAT_EVERY_S, timeout_s / 12)
        self.suspect_after_s = _BEATS_MISSED * self.beat_every_s
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
                if found := CHUNK.fullmatch(name):
                    chunks.add(int(found[1]))
            elif name.startswith("worker-") and WORKER.fullmatch(name):
                num_workers += 1
        return frozenset(chunks), max(num_workers, 1)

    def owner(self, chunk: int) -> str | None:
        """The worker that has `chunk`; None where it is free. Raises StoreError."""
        with disk_errors("read", self._chunk(chunk)):
            return owner_of(self._chunk(chunk))

    # What this worker does.

    def claim(self, chunk: int) -> bool:
        """Get `chunk`, from nobody or from a worker that has died. Raises StoreError."""
        with self._lock, disk_errors("claim", self._chunk(chunk)):
            return self._try(chunk) or self._take_over(chunk, self.timeout_s)

    def take_over(self, chunk: int, *, of_suspect: bool = False) -> bool:
        """Get `chunk` from a worker that has died; cheaper than `claim` where one surely lives.

        With `of_suspect` also from one of which nothing was heard for `suspect_after_s`. Raises
        StoreError.
        """
        silence_s = self.suspect_after_s if of_suspect else self.timeout_s
        with self._lock, disk_errors("claim", self._chunk(chunk)):
            return self._take_over(chunk, silence_s)

    def holds(self, chunk: int) -> bool:
        """Whether this worker still has `chunk`, as far as it knows."""
        with self._lock:
            return chunk in self._held

    def release(self, chunk: int) -> None:
        """Give `chunk` back. Raises StoreError."""
        with self._lock, disk_errors("release", self._chunk(chunk)):
            self._held.discard(chunk)
            release_claim(self._chunk(chunk), self.worker)

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
                if self._beaten - before <= self.suspect_after_s:
                    return frozenset()
            lost = {c for c in self._held if not claim_file(self._chunk(c), self.worker).exists()}
            self._held -= lost
            return frozenset(lost)

    def sweep(self) -> None:
        """Clear away all that the dead have left. Costs a look at each worker and each claim.

        Raises StoreError.
        """
        with self._lock, disk_errors("clear", self._folder):
            names = file_names(self._folder)
            alive = {self.worker}
            for found in filter(None, map(WORKER.fullmatch, names)):
                worker, file = found[1], self._folder / found[0]
                if worker in alive or not self._is_dead(worker, file, self.timeout_s):
                    alive.add(worker)
                    continue
                # A machine that went silent is no request's fault.
                end: End | None = "killed" if has_ended(info_in(file)) else None
                release_dead(self._run_path, worker, end)
            for folder in (self._folder / name for name in names if CHUNK.fullmatch(name)):
                owner = owner_of(folder)
                if owner is None:
                    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                        self._clear_ownerless(folder)
                elif owner not in alive and self._is_dead(owner, folder, self.timeout_s):
                    release_claim(folder, owner)

    def close(self) -> None:
        """Give everything back and leave. Raises StoreError."""
        with self._lock, disk_errors("clear", self._folder):
            self._closed = True
            for chunk in self._held:
                release_claim(self._chunk(chunk), self.worker)
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

    def _try(self, chunk: int) -> bool:
        # Noted first: what is interrupted after the rename is then still given back.
        self._held.add(chunk)
        if self._place(chunk):
            return True
        self._held.discard(chunk)
        return False

    def _take_over(self, chunk: int, silence_s: float) -> bool:
        return self._evict(chunk, silence_s) and self._try(chunk)

    def _place(self, chunk: int) -> bool:
        """Rename a folder with this worker's name in it to the chunk's; False if it is taken."""
        for _ in range(2):
            self._prepare()
            try:
                self._prepared.rename(self._chunk(chunk))
            except FileNotFoundError:  # the worker was late, or somebody has cleared claims/
                # NFS may lose the answer to a rename that was made, and then finds nothing.
                if claim_file(self._chunk(chunk), self.worker).exists():
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
                self._clock.touch(claim_file(self._chunk(chunk), self.worker))
                return True
        return False

    def _prepare(self) -> None:
        try:
            self._prepared.mkdir(exist_ok=True)
        except FileNotFoundError:
            self._appear()
            self._prepared.mkdir(exist_ok=True)
        claim_file(self._prepared, self.worker).touch()

    def _evict(self, chunk: int, silence_s: float) -> bool:
        """Whether the chunk was free, or its worker dead and this one the first to see it."""
        folder = self._chunk(chunk)
        try:
            owner = owner_of(folder)
            if owner is None:
                return self._clear_ownerless(folder)
            if owner == self.worker:
                return False
            if not self._is_dead(owner, folder, silence_s):
                return False
            claim_file(folder, owner).unlink()
        except FileNotFoundError:
            return False  # another one was faster
        return True

    def _is_dead(self, worker: str, seen_at: Path, silence_s: float) -> bool:
        """Whether a worker was not heard of for so long, or is known to be gone.

        `seen_at` is a sign of life beside its heartbeat, which a network file system may show late.
        """
        file = self._folder / f"worker-{worker}.json"
        info = info_in(file)
        if has_ended(info):
            return True
        if is_of_here(info):  # it lives, however slowly
            silence_s = self.timeout_s
        newest = 0.0
        for sign in (file, seen_at, claim_file(seen_at, worker)):
            with contextlib.suppress(OSError):
                newest = max(newest, self._clock.time_of(sign))
            if newest > self._beaten - silence_s:
                return False
        # Measured from a beat that may be old itself, a worker looks younger than it is, never
        # older; so only now is a new beat worth its cost.
        return self._clock.touch(self._file) - newest > silence_s

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


def clear_away_dead(run_path: Path, *, timeout_s: float) -> None:
    """Clear away what dead workers have left in a run, where nobody is going to work on it.

    A worker does so when it comes; what has died since, with all of its chunks done, is in nobody's
    way, and would stay. Raises StoreError.
    """
    if file_names(run_path / CLAIMS):
        with Claims(run_path, timeout_s=timeout_s) as claims:
            claims.sweep()
