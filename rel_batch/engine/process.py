"""Ties an engine's processes to ours: they end when we do, and their output goes to a file.

Surprising: the tie is made from inside the child (`die_with_parent`, called by our vLLM plugin),
because a parent that is killed with -9 cannot do anything for its children any more.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

# Inherited by every child, and by children of children.
PARENT_PID_VARIABLE = "REL_BATCH_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def become_parent() -> None:
    """Mark this process as the one whose end ends the children that it starts from now on."""
    os.environ[PARENT_PID_VARIABLE] = str(os.getpid())


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent is gone. Linux; elsewhere nothing.

    Does nothing in a process that no rel-batch process started.
    """
    expected = os.environ.get(PARENT_PID_VARIABLE)
    if expected is None or expected == str(os.getpid()) or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:  # the parent died before the tie was made
        os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def output_to(file: Path) -> Generator[None]:
    """Send this process's standard output and error to the end of `file` for a while.

    Children that start meanwhile keep writing there for as long as they live.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (*saved, target):
            os.close(descriptor)
