"""SLURM's own commands, called and read: sbatch, scontrol, squeue, sacct, scancel.

    slurm = Slurm.find()
    job = slurm.submit(script)                  # "4711"
    slurm.show("4711_3").state                  # "RUNNING"

Each command is called with a time limit, and a complaint of SLURM becomes a LaunchError with its
own words. `parse_` functions are pure and hold what was learnt about the formats.

Surprising: a job that is being cancelled and one that is being preempted look alike to its program,
and `scontrol requeue` of a job that a person has just cancelled brings it back. So nothing is ever
requeued that is not RUNNING by SLURM's own word.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rel_batch.errors import LaunchError

_TIMEOUT_S = 60.0
_SUBMIT_TIMEOUT_S = 300.0
# Of a job that ends between a look at the queue and the next command.
_ENDED_ALREADY = ("already finished", "Invalid job id")
_QUEUE_FORMAT = "%i|%T|%r|%N|%M|%L"


class UnsureError(LaunchError):
    """SLURM did not say whether it took a job."""


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A job, or one task of an array, as squeue or sacct shows it.

    Attributes:
        id: like "4711" or "4711_3".
        state: like "RUNNING"; the words of SLURM.
        reason: why it is not running.
        nodes: where it runs.
        elapsed, left: as SLURM writes times.
    """

    id: str
    state: str
    reason: str = ""
    nodes: str = ""
    elapsed: str = ""
    left: str = ""


@dataclass(frozen=True, slots=True)
class JobView:
    """What the controller says of one job or task.

    Attributes:
        state: like "RUNNING" or "COMPLETING".
        may_requeue: whether SLURM would queue it again.
        preempted: whether it has to make room for another job.
        end: when it has to end, by the controller's clock, as SLURM writes it; None for no limit.
    """

    state: str
    may_requeue: bool
    preempted: bool
    end: str | None


class Slurm:
    """The commands on this machine."""

    @classmethod
    def find(cls) -> Slurm:
        """Raises LaunchError where SLURM's commands are not installed."""
        if shutil.which("sbatch") is None:
            raise LaunchError(
                "SLURM is not on this machine: there is no sbatch in PATH",
                hint="call this on a login node; `rel-batch slurm submit CONFIG --print` shows the "
                "scripts anywhere",
            )
        return cls()

    def submit(self, script: str, *, chdir: str | None = None) -> str:
        """Queue a script and give its job id.

        Raises LaunchError where SLURM refuses it, UnsureError where it does not say.
        """
        command = ["sbatch", "--parsable", *(["--chdir", chdir] if chdir else [])]
        try:
            done = _call(command, script, timeout_s=_SUBMIT_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise UnsureError(
                f"sbatch did not answer for {_SUBMIT_TIMEOUT_S:.0f} s; the job may be queued",
                hint="look with: squeue --me",
            ) from error
        if done.returncode != 0:
            said = _complaint(done)
            if "timed out" in said.casefold():
                raise UnsureError(
                    f"sbatch had no answer ({said}); the job may be queued",
                    hint="look with: squeue --me",
                )
            raise LaunchError(f"sbatch refused the job: {said}")
        job = parse_job_id(done.stdout)
        if job is None:
            raise UnsureError(
                f"sbatch gave no job id, but {done.stdout.strip()[:200]!r}; the job may be queued",
                hint="look with: squeue --me",
            )
        return job

    def show(self, job: str) -> JobView:
        """What the controller knows of one job or task. Raises LaunchError."""
        view = parse_job_view(self._run("scontrol", "--oneliner", "show", "job", job))
        if view is None:
            raise LaunchError(f"scontrol shows no job {job}")
        return view

    def requeue(self, job: str) -> None:
        """Put one running job or task back into the queue; it is stopped. Raises LaunchError."""
        self._run("scontrol", "requeue", job)

    def forbid_requeue(self, job: str) -> None:
        """Let a job end where it ends. Raises LaunchError, but not where it has ended."""
        command = ("scontrol", "update", f"jobid={job}", "requeue=0")
        done = _answered(command)
        said = _complaint(done)
        if done.returncode != 0 and not any(word in said for word in _ENDED_ALREADY):
            raise LaunchError(f"{' '.join(command[:3])}: {said}")

    def queue(self, jobs: Sequence[str]) -> list[QueuedTask]:
        """The tasks of some jobs that wait, run or ended just now, each array task by itself."""
        if not jobs:
            return []
        command = ["squeue", "--noheader", "--array", "--states=all", "--format", _QUEUE_FORMAT]
        done = _answered([*command, "--jobs", ",".join(jobs)])
        if done.returncode != 0 and "Invalid job id" not in done.stderr:  # it has forgotten them
            raise LaunchError(f"squeue: {_complaint(done)}")
        return parse_queue(done.stdout)

    def history(self, jobs: Sequence[str]) -> list[QueuedTask]:
        """The tasks that the accounting remembers; none where a cluster keeps no accounts."""
        if not jobs or shutil.which("sacct") is None:
            return []
        command = ["sacct", "--noheader", "--parsable2", "--allocations", "--array"]
        command += ["--format", "JobID,State,NodeList,Elapsed", "--jobs", ",".join(jobs)]
        done = _answered(command)
        # "Slurm accounting storage is disabled": a cluster without accounts, and nothing wrong.
        return parse_history(done.stdout) if done.returncode == 0 else []

    def cancel_waiting(self, job: str) -> None:
        """Take the tasks that wait out of the queue. Raises LaunchError."""
        self._run("scancel", "--quiet", "--state=PENDING", job)

    def signal(self, job: str, name: str) -> None:
        """Send a signal to the script of a running task. Raises LaunchError."""
        self._run("scancel", "--quiet", "--batch", f"--signal={name}", job)

    def cancel(self, job: str) -> None:
        """End a job with all its tasks. Raises LaunchError."""
        self._run("scancel", "--quiet", job)

    def _run(self, *command: str) -> str:
        done = _answered(command)
        if done.returncode != 0:
            raise LaunchError(f"{' '.join(command[:3])}: {_complaint(done)}")
        return done.stdout


def parse_job_id(text: str) -> str | None:
    """The id that `sbatch --parsable` printed, without the name of a cluster.

    >>> parse_job_id("4711;alps"), parse_job_id("Submitted batch job 4711")
    ('4711', None)
    """
    lines = text.strip().splitlines()
    # A cluster's own sbatch may greet people first.
    found = re.fullmatch(r"(\d+)(?:;\S+)?", lines[-1].strip()) if lines else None
    return None if found is None else found[1]


def parse_job_view(text: str) -> JobView | None:
    """One line of `scontrol -o show job`, or None where it is none."""
    fields = dict(re.findall(r"(\w+)=(\S+)", text))
    if "JobState" not in fields:
        return None
    end = fields.get("EndTime")
    return JobView(
        state=fields["JobState"],
        may_requeue=fields.get("Requeue") != "0",
        preempted=fields.get("PreemptTime", "None") != "None",
        end=None if end in (None, "Unknown", "NONE") else end,
    )


def parse_queue(text: str) -> list[QueuedTask]:
    """What squeue printed: one line a task."""
    tasks: list[QueuedTask] = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) == 6:
            tasks.append(QueuedTask(*(field.strip() for field in fields)))
    return tasks


def parse_history(text: str) -> list[QueuedTask]:
    """What sacct printed: one line a task."""
    tasks: list[QueuedTask] = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) == 4 and fields[1].strip():
            # "CANCELLED by 1000": who did it is of no use here.
            state = fields[1].split()[0]
            tasks.append(QueuedTask(fields[0], state, nodes=fields[2], elapsed=fields[3]))
    return tasks


def task_name(environ: Mapping[str, str]) -> str | None:
    """The name by which SLURM requeues this task and no other, or None outside of SLURM.

    The last task of an array has the id of the whole array as its SLURM_JOB_ID, so that requeueing
    that would run every task again.

    >>> task_ids({"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"})
    '7_3'
    """
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    return environ.get("SLURM_JOB_ID") or None


def _call(
    command: Sequence[str], script: str | None = None, *, timeout_s: float = _TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 (SLURM's own commands; no shell)
            command,
            input=script,
            stdin=None if script is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise LaunchError(f"{command[0]} cannot be started: {error.strerror}") from error


def _answered(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return _call(command)
    except subprocess.TimeoutExpired as error:
        raise LaunchError(
            f"{command[0]} did not answer for {_TIMEOUT_S:.0f} s",
            hint="the controller may be busy: try again",
        ) from error


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """What SLURM said, on one line, without the command's name before each sentence."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    said = [re.sub(r"^\w+: (error: )?", "", line).strip() for line in lines]
    return "; ".join(line for line in said if line) or f"exit code {done.returncode}"
