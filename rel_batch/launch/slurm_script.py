"""The text of the scripts that sbatch gets: a pure function of settings, pinned by golden files.

    render_array(SlurmConfig(tasks=4), Placement.of_run(folder, command))

A task is `rel-batch slurm task RUN`, a worker of the run folder and nothing more. Surprising: the
script ends with `exec`, because SLURM's signals go to the process of the script (`B:` in
`--signal`, since without it only steps get them), and a shell that waits for a program in the
foreground does not pass them on.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rel_batch.slurm_settings import SlurmConfig

# What a script says of a run whose folder is given when it is submitted.
_RUN_IS_AN_ARGUMENT = '"${1:?give the run folder}"'

Option = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a script runs and writes.

    Attributes:
        name: of the job.
        command: how rel-batch is called on a node, as words of a shell.
        run: the run folder, as a word of a shell.
        logs: the folder for what tasks print; None is where sbatch was called.
    """

    name: str
    command: str
    run: str
    logs: Path | None

    @classmethod
    def of_run(cls, folder: Path, command: Sequence[str]) -> Placement:
        """A script for one run, with nothing left to fill in."""
        return cls(
            name=f"rel-{folder.name}",
            command=shlex.join(command),
            run=shlex.quote(str(folder)),
            logs=folder / "logs",
        )

    @classmethod
    def of_any_run(cls, name: str) -> Placement:
        """A script that takes the run folder as its first argument."""
        return cls(name=name, command="rel-batch", run=_RUN_IS_AN_ARGUMENT, logs=None)


def render_array(
    settings: SlurmConfig,
    place: Placement,
    *,
    after: str | None = None,
    about: Sequence[str] = (),
) -> str:
    """The array: `settings.tasks` alike workers of one run folder."""
    several = settings.nodes_per_task > 1
    throttle = "" if settings.throttle is None else f"%{settings.throttle}"
    options: dict[str, Option] = {
        "job-name": place.name,
        "array": f"0-{settings.tasks - 1}{throttle}",
        "nodes": settings.nodes_per_task,
        "ntasks-per-node": 1,
        "cpus-per-task": settings.cpus_per_task,
        "gres": f"gpu:{settings.gpus_per_task}" if settings.gpus_per_task else None,
        "mem": settings.mem,
        "time": settings.time,
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "constraint": settings.constraint,
        "nodelist": settings.nodelist,
        # B: for the script itself; without it the steps that the script starts.
        "signal": f"USR2@{settings.lead_s}" if several else f"B:USR2@{settings.lead_s}",
        "requeue": True,
        "open-mode": "append",
        "output": _log(place, "%x-%A_%a.log"),
        "dependency": after,
        "kill-on-invalid-dep": "yes" if after else None,
    }
    return _render(
        about or ("Workers of one run folder: any of them may die, be requeued, or never start.",),
        {**options, **settings.sbatch},
        (
            f"run={place.run}",
            *_setup(settings),
            "",
            *_TASK_ENVIRONMENT,
            "",
            *(_OVER_NODES if several else _ON_ONE_NODE),
            f'exec {"srun " * several}{place.command} slurm task "$run" '
            f'--max-requeues {settings.max_requeues} --scratch "$scratch"',
        ),
    )


def render_report(
    settings: SlurmConfig,
    place: Placement,
    *,
    array_job: str | None = None,
    about: Sequence[str] = (),
) -> str:
    """The CPU job that scores, compacts and reports when the array has ended, however it ended."""
    report = settings.report
    options: dict[str, Option] = {
        "job-name": f"{place.name}-report",
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": report.cpus_per_task,
        "mem": report.mem,
        "time": report.time,
        "partition": report.partition,
        "account": settings.account,
        "requeue": True,
        "open-mode": "append",
        "output": _log(place, "%x-%j.log"),
        # afterany: an array that lost a task is reported as well, as what it is.
        "dependency": array_job and f"afterany:{array_job}",
        "kill-on-invalid-dep": "yes",
    }
    return _render(
        about or ("Scores, compacts and reports a run when its array has ended.",),
        {**options, **report.sbatch},
        (
            f"run={place.run}",
            *_setup(settings),
            "",
            "export HF_HUB_OFFLINE=1",
            "",
            f'exec {place.command} slurm finish "$run"',
        ),
    )


_TASK_ENVIRONMENT = (
    "# The model and the data are there since the run was prepared: nothing is downloaded here.",
    "export HF_HUB_OFFLINE=1",
    "# Each task compiles for itself, on a disk of its node where there is one.",
    "scratch=${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/rel-batch-$(id -u)/$SLURM_JOB_ID",
    "export VLLM_CACHE_ROOT=$scratch/vllm TRITON_CACHE_DIR=$scratch/triton",
    "export TORCHINDUCTOR_CACHE_DIR=$scratch/torchinductor",
    "# Tasks may share a node, so no port is fixed: vLLM takes free ones.",
    "unset VLLM_PORT MASTER_ADDR MASTER_PORT",
)
_ON_ONE_NODE = (
    "# Until the program listens, a signal that comes early must not end it.",
    "trap '' USR2",
    "# exec: the signals of SLURM reach the program, not a shell that waits for it.",
)
_OVER_NODES = (
    "# One engine over all nodes: the first one leads, and is met at a port of this job's own.",
    'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
    "address=$(scontrol --oneliner show node \"$head\" | grep -o 'NodeAddr=[^ ]*')",
    "export REL_BATCH_HEAD=${address#NodeAddr=}:$((20000 + SLURM_JOB_ID % 10000))",
    "# When the first node's process has ended, the others' have nothing left to do.",
    "export SLURM_KILL_BAD_EXIT=1 SLURM_WAIT=60",
    "# A step does not inherit the job's --cpus-per-task.",
    "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}",
)


def _render(about: Iterable[str], options: Mapping[str, Option], body: Iterable[str]) -> str:
    lines = ["#!/bin/bash", *(f"# {line}".rstrip() for line in about)]
    for name, value in options.items():
        if value is None or value is False:
            continue
        lines.append(f"#SBATCH --{name}" + ("" if value is True else f"={_quoted(str(value))}"))
    return "\n".join([*lines, "", *body]) + "\n"


def _setup(settings: SlurmConfig) -> list[str]:
    return ["", *settings.setup] if settings.setup else []


def _quoted(value: str) -> str:
    """As sbatch reads it, which is no shell: quotes are all that it knows."""
    return value if re.fullmatch(r"[^\s\"\'\\#]+", value) else f'"{value}"'


def _log(place: Placement, name: str) -> str:
    if place.logs is None:
        return name
    # What follows a % would be filled in.
    return str(place.logs).replace("%", "%%") + f"/{name}"
