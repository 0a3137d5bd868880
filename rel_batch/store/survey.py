"""Who works on what at one moment, for whoever watches: read from names alone, from anywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rel_batch.store.claim_files import CHUNK, CLAIMS, WORKER, claim_file, info_in, owner_of
from rel_batch.store.clock import FileClock
from rel_batch.store.disk import file_names


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


def read_survey(run_path: Path, *, now: float, clock: FileClock | None = None) -> Survey:
    """All workers and claims, for whoever watches. `now` is `file_system_now`'s. Only reads."""
    clock = clock or FileClock()
    folder = run_path / CLAIMS
    workers: list[WorkerRecord] = []
    claims: list[ClaimRecord] = []
    for name in sorted(file_names(folder)):
        # Whatever goes away while it is looked at was not there.
        with contextlib.suppress(OSError):
            if found := WORKER.fullmatch(name):
                age_s = max(0.0, now - clock.time_of(folder / name))
                workers.append(WorkerRecord(found[1], age_s, info_in(folder / name)))
            elif found := CHUNK.fullmatch(name):
                owner = owner_of(folder / name)
                if owner is not None:
                    age_s = max(0.0, now - claim_file(folder / name, owner).stat().st_mtime)
                    claims.append(ClaimRecord(int(found[1]), owner, age_s))
    return Survey(tuple(workers), tuple(claims))
