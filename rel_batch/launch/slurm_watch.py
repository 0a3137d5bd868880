"""What SLURM says of a run's tasks, and ending them gently.

    for array in read_arrays(run, Slurm.find()): ...
    cancel(run, Slurm.find())

A gentle end keeps all rows: tasks that wait are taken out of the queue, those that run get the
signal of a time limit and finish as in a local stop. Surprising: requeueing is switched off first,
because a task that is stopped this way would otherwise queue itself again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rel_batch.launch.slurm import QueuedTask, Slurm
from rel_batch.launch.slurm_submit import Submission, read_submissions

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING", "SUSPENDED"})
_ENDED = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"),
        *("OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"),
    }
)


@dataclass(frozen=True, slots=True)
class ArrayView:
    """A submission and its tasks as SLURM knows them; those that it has forgotten are absent."""

    submission: Submission
    tasks: tuple[QueuedTask, ...]
    report: QueuedTask | None

    def count_states(self) -> Counter[str]:
        """How many tasks are in each state; UNKNOWN for those that SLURM has forgotten."""
        states = Counter(task.state for task in self.tasks)
        forgotten = self.submission.tasks - len(self.tasks)
        if forgotten > 0:
            states["UNKNOWN"] = forgotten
        return states

    @property
    def alive(self) -> tuple[QueuedTask, ...]:
        """The tasks that wait or run."""
        return tuple(task for task in self.tasks if task.state not in _ENDED)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What `cancel` did to one submission."""

    submission: Submission
    num_waiting: int
    num_running: int


def read_arrays(folder: Path, slurm: Slurm) -> list[ArrayView]:
    """What was submitted for a run, and what became of it. Raises RelBatchError."""
    submissions = read_submissions(folder)
    jobs = [
        job
        for found in submissions
        for job in (found.array_job, found.report_job)
        if job is not None
    ]
    known = {task.id: task for task in slurm.history(jobs)}
    # The queue knows better than the accounts, which may be late.
    known |= {task.id: task for task in slurm.queue(jobs)}
    return [_view(submission, list(known.values())) for submission in submissions]


def cancel(folder: Path, slurm: Slurm, *, now: bool) -> list[Cancelled]:
    """End the tasks of a run that wait or run. Raises RelBatchError.

    Gently: the report job stays in the queue and reports what there is. With `now`, everything
    ends at once, the report job as well; rows that are not yet on disk are lost.
    """
    done: list[Cancelled] = []
    for array in read_arrays(folder, slurm):
        job = array.submission.array_job
        if not array.alive and not (now and array.report and array.report.state not in _ENDED):
            continue
        waiting = sum(task.state in _WAITING for task in array.alive)
        if now:
            slurm.cancel(job)
            if array.submission.report_job is not None:
                slurm.cancel(array.submission.report_job)
        else:
            slurm.forbid_requeue(job)
            slurm.cancel_waiting(job)
            slurm.signal(job, "USR2")
        done.append(Cancelled(array.submission, waiting, len(array.alive) - waiting))
    return done


def _view(submission: Submission, known: Sequence[QueuedTask]) -> ArrayView:
    tasks = [task for task in known if task.id.partition("_")[0] == submission.array_job]
    return ArrayView(
        submission,
        tuple(sorted(tasks, key=_number)),
        next((task for task in known if task.id == submission.report_job), None),
    )


def _number(task: QueuedTask) -> int:
    number = task.id.partition("_")[2]
    return int(number) if number.isdigit() else -1
