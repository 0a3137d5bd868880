"""A writer that is killed (SIGKILL) just before its nth call to the disk, for n = 0, 1, 2, ...

    python killed_writer.py FOLDER

Each try works in a folder of its own (FOLDER/0, FOLDER/1, ...); the first that reaches the end
ends the script.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from example_runs import MANIFEST, completion, instance, request

from rel_batch.records import Completion, Instance, PlannedRequest
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder

INSTANCES: list[Instance] = [instance(0), instance(1)]
REQUESTS: list[PlannedRequest] = [request(0), request(1)]
COMPLETIONS: list[Completion] = [completion(0), completion(1)]


def bring_to_the_end(path: Path) -> RunFolder:
    """What a command does: create or resume, publish what is missing, score what is missing."""
    run = RunFolder.create_or_resume(path, MANIFEST, INSTANCES, REQUESTS)
    finished = run.finished_keys()
    for row in COMPLETIONS:
        if row.request_key not in finished:
            run.publish_part(row.chunk, [row])
    score_run(run)
    return run


def _killed_at(number: int, call: Callable[..., Any], calls: Iterator[int]) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)

    return counted


def dying_at_call(number: int, act: Callable[[], object]) -> bool:
    """Do it in another process that is killed at its nth call to the disk; whether it ended."""
    child = os.fork()
    if child == 0:
        calls = iter(range(10**9))
        for name in ("fsync", "link", "replace", "unlink", "mkdir"):
            setattr(os, name, _killed_at(number, getattr(os, name), calls))
        act()
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def main(folder: Path) -> None:
    # Once here, or each of a hundred children would import what is only imported on use.
    with tempfile.TemporaryDirectory(dir=folder.parent) as other:
        bring_to_the_end(Path(other) / "run")
    for number in itertools.count():
        if dying_at_call(number, lambda path=folder / str(number): bring_to_the_end(path)):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
