"""The time as the file system that holds a run has it, whatever its machines believe.

    clock.touch(file)            # now, as the file system writes it beside a file
    file_system_now(run_path)    # the same without a file of one's own

Surprising: a network file system answers a question about a file from memory, for up to a minute,
unless the file has just been opened; so that is done each time.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path


class FileClock:
    """The time as the file system has it: what it writes beside a file that is touched now."""

    def touch(self, file: Path) -> float:
        """Make `file` as new as anything can be, and give the time. Raises OSError."""
        os.utime(file)  # without a time of ours: a network file system takes its server's
        return self.time_of(file)

    def time_of(self, path: Path) -> float:
        """When `path` was touched last. Raises OSError."""
        # Opened, or NFS would answer from memory.
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)


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
