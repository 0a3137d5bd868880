"""Which requests were in an engine when it died, over all workers of a run.

    claims/death-<random>.json    {"keys": [...], "alone": false, "reason": "...", "worker": "..."}

A request that was there at one death is innocent until it was there at a second one; then it is run
alone, and where the engine dies of it alone, it ends as an `engine_error`. Nothing else depends on
these files: without them the count begins anew.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rel_batch.store import write_file
from rel_batch.store.claims import CLAIMS
from rel_batch.store.disk import file_names, make_folder

_DEATH = re.compile(r"death-[0-9a-f]+\.json", re.ASCII)
SUSPECT_AFTER = 2


class Deaths:
    """The deaths of a run's engines."""

    def __init__(self, run_path: Path) -> None:
        self._folder = run_path / CLAIMS
        self._read: set[str] = set()
        self._deaths: Counter[str] = Counter()
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
            if name not in self._read and _DEATH.fullmatch(name):
                self._read.add(name)
                # A file that is gone or no JSON counts for nothing.
                with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                    self._count(json.loads((self._folder / name).read_bytes()))

    def is_suspect(self, key: str) -> bool:
        """Whether a request has to be run alone."""
        return self._deaths[key] >= SUSPECT_AFTER

    def killed_by(self, key: str) -> str | None:
        """What the engine died of when it ran this request alone; None if it never did."""
        return self._died_alone.get(key)

    def _count(self, death: Any) -> None:
        keys = [str(key) for key in death.get("keys", ())]
        self._deaths.update(keys)
        if death.get("alone"):
            self._died_alone.update(dict.fromkeys(keys, str(death.get("reason"))))
