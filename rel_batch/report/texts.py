"""Texts of a report that wait on disk until the page is written, so that no run is too large.

    texts = Texts()
    place = texts.keep(["a reply", "a thought"])
    texts.read(place)    # ["a reply", "a thought"]

A file without a name: it goes when the process does, whatever ends it.
"""

from __future__ import annotations

import json
import tempfile
import weakref
import zlib
from typing import Any

from rel_batch.errors import StoreError

_LENGTH_BYTES = 4


class Texts:
    """JSON values, each at a place that is a number."""

    def __init__(self) -> None:
        self._file: Any = None

    def keep(self, value: Any) -> int:
        """Keep a JSON value and give its place. Raises StoreError."""
        packed = zlib.compress(json.dumps(value, ensure_ascii=False).encode("utf-8"), 1)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="rel-batch-report-")  # noqa: SIM115
                # Findings travel: who holds them last is the one to close it.
                weakref.finalize(self, self._file.close)
            place = self._file.seek(0, 2)
            self._file.write(len(packed).to_bytes(_LENGTH_BYTES, "big") + packed)
        except OSError as error:
            raise StoreError(
                f"cannot keep the texts of the report in {tempfile.gettempdir()}: "
                f"{error.strerror or error}",
                hint="set TMPDIR to a folder with more room",
            ) from error
        return int(place)

    def read(self, place: int) -> Any:
        """The value that was kept at a place. Raises StoreError."""
        try:
            self._file.seek(place)
            length = int.from_bytes(self._file.read(_LENGTH_BYTES), "big")
            return json.loads(zlib.decompress(self._file.read(length)))
        except OSError as error:
            raise StoreError(f"cannot read the report's texts: {error}") from error
