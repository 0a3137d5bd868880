"""Which requests were in an engine when it or its worker died, over all workers of a run.

    claims/death-<random>.json    {"keys": [...], "alone": false, "reason": "...", "worker": "..."}
    claims/death-<worker>.killed  what a worker had in its engine at its own end (store/flight.py)

A request that was there at one death is innocent until it was there at a second one; then it is run
alone, and where the engine dies of it alone, or the worker crashes (a segmentation fault, an
abort), it ends as an `engine_error`. Surprising: a worker that was killed from outside says less,
because it may have been a person or a scheduler; so that has to happen three times with the request
alone. And a worker of which nothing was heard any more, as on a machine that was taken away, says
nothing at all. Nothing else depends on these files: without them the count begins anew.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rel_batch.store import write_file
from rel_batch.store.claim_files import CLAIMS
from rel_batch.store.disk import file_names, make_folder
from rel_batch.store.flight import End, end_of, read_flight

_DEATH = re.compile(r"death-[0-9a-f]+\.json", re.ASCII)
SUSPECT_AFTER = 2
_KILLS_ALONE = 3


class Deaths:
    """The deaths of a run's engines."""

    def __init__(self, run_path: Path) -> None:
        self._folder = run_path / CLAIMS
        self._read: set[str] = set()
        self._deaths: Counter[str] = Counter()
        self._killed_alone: Counter[str] = Counter()
        self._died_alone: dict[str, str] = {}

    def record(self, keys: Collection[str], *, alone: bool, reason: str, worker: str) -> None:
        """Note a death, for this worker and the others. Raises StoreError."""
        name = f"death-{secrets.token_hex(8)}.json"
        death = {"keys": sorted(keys), "alone": alone, "reason": reason, "worker": worker}
        self._read.add(name)
        self._count(death)
        make_folder(self._folder)
        write_file(self._folder / name, json.dumps(death).encode())

    def refresh(self) -> None:
        """Read the deaths that others have noted. Raises StoreError."""
        for name in file_names(self._folder):
            if not name.startswith("death-") or name in self._read:
                continue
            # A file that is gone or no JSON counts for nothing.
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                if _DEATH.fullmatch(name):
                    self._read.add(name)
                    self._count(json.loads((self._folder / name).read_bytes()))
                elif (end := end_of(name)) is not None:
                    self._read.add(name)
                    self._count_worker(read_flight(self._folder / name), end)

    def is_suspect(self, key: str) -> bool:
        """Whether a request has to be run alone."""
        return self._deaths[key] >= SUSPECT_AFTER

    def killed_by(self, key: str) -> str | None:
        """How this request, run alone, ended what ran it; None if it never did."""
        return self._died_alone.get(key)

    def _count(self, death: Any) -> None:
        keys = [str(key) for key in death.get("keys", ())]
        self._deaths.update(keys)
        if death.get("alone"):
            reason = str(death.get("reason"))
            reason = f"the engine died three times with this request, at last alone: {reason}"
            self._died_alone.update(dict.fromkeys(keys, reason))

    def _count_worker(self, flight: Mapping[str, bool], end: End) -> None:
        self._deaths.update(list(flight))
        for key in (key for key, alone in flight.items() if alone):
            self._killed_alone[key] += 1
            if end == "crashed":
                reason = "the worker crashed with this request again and again, at last alone"
            elif self._killed_alone[key] >= _KILLS_ALONE:
                reason = (
                    f"the worker was killed {_KILLS_ALONE} times when it ran this request alone"
                )
            else:
                continue
            self._died_alone[key] = f"{reason}; what it said is in logs/"
