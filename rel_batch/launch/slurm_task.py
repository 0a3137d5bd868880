"""One task of an array: a worker of the run, and what happens after SLURM has stopped it.

A stop by SLURM (USR2 before the time limit, SIGTERM when a job is preempted) ends the worker as a
local stop does: what has finished is on disk, claims are released. Then the task puts itself back
into the queue, if that can help (`why_not_again`).

Surprising: a task that SLURM itself will requeue, or that a person has cancelled, is told apart by
asking the controller: only what it still calls RUNNING is ours to requeue.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rel_batch.engine.nodes import Nodes
from rel_batch.errors import LaunchError
from rel_batch.launch.devices import Place, places
from rel_batch.launch.engines import follow_engine
from rel_batch.launch.joining import work_here
from rel_batch.launch.progress import Progress
from rel_batch.launch.setup import load_setup
from rel_batch.launch.slurm import JobView, Slurm, task_name
from rel_batch.launch.supervisor import Supervisor
from rel_batch.store import RunFolder
from rel_batch.store.chunks import count_finished, read_chunk_index
from rel_batch.store.disk import disk_errors
from rel_batch.worker import FailureLimit, Stop, StopRequested
from rel_batch.worker.stopping import stop_on_signals

# What a script's --scratch holds, and all that is ever removed from it.
_CACHES = ("vllm", "torchinductor", "triton")


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a task, as SLURM describes it in the environment.

    Attributes:
        name: what SLURM requeues this task by, and no other task.
        restarts: how often it has been requeued before.
        devices: the GPUs that it was given, as CUDA_VISIBLE_DEVICES has them; None for no mask.
    """

    name: str
    restarts: int
    devices: str | None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Raises LaunchError outside of a job."""
        name = task_name(environ)
        if name is None:
            raise LaunchError(
                "this is not a SLURM job: SLURM_JOB_ID is not set",
                hint="rel-batch join RUN adds a worker anywhere",
            )
        # Unset in the first life.
        restarts = environ.get("SLURM_RESTART_COUNT", "")
        return cls(
            name=name,
            restarts=int(restarts) if restarts.isascii() and restarts.isdigit() else 0,
            devices=environ.get("CUDA_VISIBLE_DEVICES"),
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """How the worker of a life has ended.

    Attributes:
        stopped: whether a signal stopped it.
        num_missing: requests of the run without a row.
        num_added: rows that the run has gained during this life.
    """

    stopped: bool
    num_missing: int
    num_added: int


def why_not_again(ended: Ended, life: Life, view: JobView, max_requeues: int) -> str | None:
    """Why a task should not queue itself again, or None where it should."""
    if ended.num_missing == 0:
        return "every request has its row"
    if not ended.stopped:
        return "no signal stopped it"
    if view.state != "RUNNING":
        return f"SLURM has already decided about it ({view.state})"
    if not view.may_requeue:
        return "requeueing is switched off for it, as `rel-batch slurm cancel` does"
    if life.restarts >= max_requeues:
        return f"it has been requeued {life.restarts} times"
    # Making room for others is no fault; reaching a time limit without one row is.
    if ended.num_added == 0 and not view.preempted:
        return "the run has gained no row in this life: the time limit may be too short"
    return None


def run_task(
    path: Path,
    progress: Progress,
    *,
    max_requeues: int,
    scratch: Path | None,
    workers: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Be a task of a run: work on it, and requeue this task where it was stopped and that helps.

    Gives the number of requests that have no row. Raises RelBatchError.
    """
    life = Life.from_environment(environ)
    with stop_on_signals() as stop:
        # The command has held them back until somebody listens.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGUSR2, signal.SIGTERM))
        run = RunFolder.open(path)
        num_requests = read_chunk_index(run).num_requests
        num_before = count_finished(run).total()
        progress.say(_greeting(life, environ, num_requests - num_before))
        if num_before == num_requests:
            return 0
        nodes = Nodes.from_environment(environ)
        if nodes is not None and not nodes.leads:
            # What a signal means is for the node that leads; its end is this one's. The engines
            # start together, so the mark of its work is there before this node could look.
            progress.say(f"node {nodes.rank} of {nodes.number} follows {nodes.host}")
            log_file = run.path / "logs" / f"engine-slurm-{life.name}-node{nodes.rank}.log"
            mark = _mark(run, life)
            follow_engine(load_setup(run), log_file, lambda: not mark.exists())
            return num_requests - count_finished(run).total()
        try:
            with _marked(_mark(run, life)) if nodes is not None else contextlib.nullcontext():
                _work(run, life, progress, stop, workers, environ)
        except StopRequested as request:
            progress.say(f"stopped by {request.reason}; what has finished is on disk")
    num_finished = count_finished(run).total()
    ended = Ended(
        stopped=stop.reason is not None,
        num_missing=num_requests - num_finished,
        num_added=num_finished - num_before,
    )
    if ended.stopped and ended.num_missing:
        _requeue_if_useful(ended, life, Slurm(), max_requeues, progress.say)
    elif scratch is not None:
        remove_scratch(scratch)
    return ended.num_missing


def _mark(run: RunFolder, life: Life) -> Path:
    """A file that is there while the first of several nodes works."""
    return run.path / "claims" / f"leading-{life.name}-{life.restarts}"


@contextlib.contextmanager
def _marked(mark: Path) -> Generator[None]:
    """Raises StoreError."""
    with disk_errors("write", mark):
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
    try:
        yield
    finally:
        with disk_errors("remove", mark):
            mark.unlink(missing_ok=True)


def _work(
    run: RunFolder,
    life: Life,
    progress: Progress,
    stop: Stop,
    workers: int | None,
    environ: Mapping[str, str],
) -> None:
    with stop.interruptible():
        setup = load_setup(run)
        # An engine over several nodes takes whatever the task has.
        several = Nodes.from_environment(environ) is not None
        where = [Place()] if several else places(setup.config, workers, environ)
    if len(where) == 1:
        # Whoever watches the run sees which task works on what.
        worker = f"slurm-{life.name}-{life.restarts}-{secrets.token_hex(2)}"
        # The other nodes of an engine do not outlive it, so there it is not started again.
        work_here(setup, progress, stop, worker=worker, most_deaths=1 if several else 5)
    else:
        with Supervisor(setup.config, where, progress, stop, FailureLimit()) as supervisor:
            supervisor.run(setup)


def _requeue_if_useful(
    ended: Ended, life: Life, slurm: Slurm, max_requeues: int, say: Callable[[str], None]
) -> None:
    try:
        reason = why_not_again(ended, life, slurm.show(life.name), max_requeues)
        if reason is None:
            say(f"{life.name} is requeued: {ended.num_missing:,} requests have no row yet")
            # SLURM may end this process at any moment from here on.
            slurm.requeue(life.name)
        else:
            say(f"{life.name} is not requeued: {reason}")
    except LaunchError as error:
        # All rows are on disk: a controller that does not answer is no reason to fail.
        say(f"{life.name} cannot be requeued: {error.message}")


def _greeting(life: Life, environ: Mapping[str, str], num_missing: int) -> str:
    gpus = "no mask of GPUs" if life.devices is None else f"GPUs {life.devices or 'none'}"
    node = environ.get("SLURMD_NODENAME", "?")
    return f"task {life.name} on {node}, life {life.restarts + 1}, {gpus}: {num_missing:,} to do"


def remove_scratch(folder: Path) -> None:
    """Remove a task's compile caches, and the folder itself where nothing else is in it."""
    for name in _CACHES:
        # A cache that cannot be removed is no reason to fail.
        shutil.rmtree(folder / name, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
