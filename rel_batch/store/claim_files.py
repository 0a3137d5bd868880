"""The names in a run's `claims/`, and how one is taken out.

    claims/worker-<id>.json         who a worker is; its heartbeat
    claims/chunk-00012/worker-<id>  this worker works on chunk 12; an empty folder is nobody's

What they are for is told in `claims.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rel_batch.store.disk import disk_errors, file_names
from rel_batch.store.flight import End, bury

CLAIMS = "claims"
CHUNK = re.compile(r"chunk-(\d{5,9})", re.ASCII)
_ID = r"worker-([A-Za-z0-9][A-Za-z0-9_-]*)"
CLAIM = re.compile(_ID, re.ASCII)
WORKER = re.compile(_ID + r"\.json", re.ASCII)


def claim_file(folder: Path, worker: str) -> Path:
    """The name of a worker in a chunk's folder."""
    return folder / f"worker-{worker}"


def owner_of(folder: Path) -> str | None:
    """The worker whose name is in a chunk's folder. Raises OSError."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # A file that NFS keeps for somebody who still reads it, or that a person left, is no worker.
    return next((found[1] for name in sorted(names) if (found := CLAIM.fullmatch(name))), None)


def release_claim(folder: Path, worker: str) -> None:
    """Take out a worker's own name, and the folder only where that leaves it empty.

    The claim of another one is never touched. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        claim_file(folder, worker).unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()


def info_in(file: Path) -> Mapping[str, Any]:
    """What a worker says of itself; nothing where its file is gone or no JSON."""
    try:
        value: Any = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def release_dead(run_path: Path, worker: str, end: End | None = None) -> None:
    """Give back what a worker had that is known to have ended.

    `end` says how, where what it had in its engine may have to do with it. Raises StoreError.
    """
    folder = run_path / CLAIMS
    with disk_errors("clear", folder):
        # First, so that whoever claims its chunks next knows.
        bury(folder, worker, end)
        for name in file_names(folder):
            if CHUNK.fullmatch(name):
                release_claim(folder / name, worker)
        (folder / f"worker-{worker}.json").unlink(missing_ok=True)
        shutil.rmtree(folder / f".claim-{worker}.tmp", ignore_errors=True)
