"""Whether a process of this machine is still there, for whoever has only its name in a file.

    told = this_process()        # into a file
    has_ended(told)              # True, once that process is gone; False for any other machine's

A number alone does not tell a process: numbers are given again, after a reboot and before, and each
container counts its own. So the machine's boot, the name space of process numbers and the time at
which the process started are told, too.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """What there is to say of this process."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(),
        "process_started": _process_started(os.getpid()),
    }


def has_ended(info: Mapping[str, Any]) -> bool:
    """Whether a process ran on this machine, since it was last booted, and is gone."""
    pid = info.get("pid")
    if not is_of_here(info) or not isinstance(pid, int):
        return False
    return _process_started(pid) != info.get("process_started")


def is_of_here(info: Mapping[str, Any]) -> bool:
    """Whether a process ran on this machine, since it was last booted: then its end can be seen."""
    return bool(info.get("machine")) and info["machine"] == _machine()


@functools.cache
def _machine() -> str | None:
    """What tells this machine, its boot and its process numbers from others; Linux only."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _process_started(pid: int) -> str | None:
    """When a process started, in ticks since the boot; None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # state ppid pgrp ... starttime is field 22 of all, the 20th after the name.
    return None if fields[0] in "ZX" else fields[19]
