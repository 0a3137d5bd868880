"""One worker of a run: claim a chunk, generate what it lacks, publish it, claim the next.

    with Claims(run.path, timeout_s=120.0) as claims:
        Worker(run, claims, outfit, settings, stop=Stop()).work()

A worker holds no state that matters: whatever is not published when it dies is run again, by it or
by another. `worker.py` is the loop and the engine's life, `supply.py` what the engine is given,
`publisher.py` what goes to disk and when, `stopping.py` how a signal ends it, `deaths.py` which
requests an engine or a worker died of, `failures.py` when a run has gone wrong.
"""

from rel_batch.worker.failures import FAILURES, FailureLimit
from rel_batch.worker.stopping import Stop, StopRequested
from rel_batch.worker.worker import Outfit, Worker, WorkerSettings

__all__ = [
    "FAILURES",
    "FailureLimit",
    "Outfit",
    "Stop",
    "StopRequested",
    "Worker",
    "WorkerSettings",
]
