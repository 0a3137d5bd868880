"""What a worker has in its engine, in a file that outlives the worker.

    claims/flight-<worker>            "+<key>" handed out, "!<key>" handed out alone, "-<key>" done
    claims/death-<worker>.crashed     the same file, of a worker that ended by a fault of its own,
    claims/death-<worker>.killed      or that something else has ended: a person, a lack of memory

A request that ends the process of its worker must not do so for ever (worker/deaths.py), and the
worker cannot tell of it any more; so it writes down beforehand what it runs. Nothing is synced, as
the file has to survive a process, not a machine: a line is one write that the kernel buffers.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from rel_batch.store.disk import disk_errors

End = Literal["crashed", "killed"]

_DEATH = re.compile(r"death-[A-Za-z0-9][A-Za-z0-9_-]*\.(crashed|killed)", re.ASCII)
# Finished requests are dropped from the file when it has grown by so much.
_REWRITE_BYTES = 1 << 16


class Flight:
    """The requests that one worker has handed out. The file appears with the first of them."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._file = _flight_file(folder, worker)
        self._descriptor: int | None = None
        self._keys: dict[str, str] = {}
        self._num_bytes = 0
        self._closed = False

    def enter(self, key: str, *, alone: bool = False) -> None:
        """Note that a request is handed out. Raises StoreError."""
        self._keys[key] = "!" if alone else "+"
        self._write(f"{self._keys[key]}{key}\n")

    def leave(self, key: str) -> None:
        """Note that a request is the engine's no more. Raises StoreError."""
        if self._keys.pop(key, None) is not None:
            self._write(f"-{key}\n")

    def clear(self) -> None:
        """Note that none is. Raises StoreError."""
        for key in list(self._keys):
            self.leave(key)

    def close(self) -> None:
        """Leave no file behind, and write none any more. Raises OSError."""
        self._closed = True
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._file.unlink(missing_ok=True)

    def _write(self, text: str) -> None:
        if self._closed:
            return
        with disk_errors("write", self._file):
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._descriptor = os.open(self._file, flags, 0o666)
            if self._num_bytes > _REWRITE_BYTES:
                os.ftruncate(self._descriptor, 0)
                self._num_bytes = 0
                text = "".join(f"{how}{key}\n" for key, how in self._keys.items())
            self._num_bytes += os.write(self._descriptor, text.encode())


def bury(folder: Path, worker: str, end: End | None) -> None:
    """Keep what a worker that has ended had in its engine as a death; without `end` forget it.

    Raises OSError.
    """
    file = _flight_file(folder, worker)
    with contextlib.suppress(FileNotFoundError):
        if end is None or not read_flight(file):
            file.unlink()
        else:
            file.rename(folder / f"death-{worker}.{end}")


def end_of(name: str) -> End | None:
    """How the worker ended whose death a file of this name tells of; None for any other name."""
    found = _DEATH.fullmatch(name)
    if found is None:
        return None
    return "crashed" if found[1] == "crashed" else "killed"


def read_flight(file: Path) -> dict[str, bool]:
    """The requests that were in an engine at the end of a file, and whether each was alone there.

    Raises OSError.
    """
    found: dict[str, bool] = {}
    for how, key in _lines(file.read_text("utf-8", "replace")):
        if how == "-":
            found.pop(key, None)
        else:
            found[key] = how == "!"
    return found


def _lines(text: str) -> Iterator[tuple[str, str]]:
    # What follows the last end of a line was not written to its end.
    for line in text.split("\n")[:-1]:
        if line[:1] in ("+", "!", "-"):
            yield line[0], line[1:]


def _flight_file(folder: Path, worker: str) -> Path:
    return folder / f"flight-{worker}"
