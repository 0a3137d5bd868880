"""How a cluster is asked for machines: the section `slurm:` of a config, and nothing of a run.

    slurm:
      partition: gpu
      account: project-17
      time: "8:00:00"
      setup: [module load cuda, source ~/venv/bin/activate]
      sbatch: {mail-type: FAIL}

The same keys may stand in `~/.config/rel-batch/slurm.yaml`, where they hold for every run.
Surprising: these settings are no part of a run's identity, and are not stored with it: the same run
may be worked on from two partitions, or two clusters that see one file system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_DURATION = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def parse_duration_s(text: str) -> int | None:
    """Seconds of a time as SLURM writes it, or None where it is none.

    >>> parse_duration_s("4:00:00"), parse_duration_s("90"), parse_duration_s("1-12")
    (14400, 5400, 129600)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    days, *rest = found.groups()
    numbers = [int(part) for part in rest if part is not None]
    if days is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:  # minutes[:seconds]
        hours, minutes, seconds = 0, numbers[0], numbers[1] if len(numbers) == 2 else 0
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def _is_duration(text: str) -> str:
    if not parse_duration_s(text):
        raise ValueError('expected a time as sbatch takes it, like "4:00:00", "90" or "1-12:00:00"')
    return text


def _is_one_line(text: str) -> str:
    # A line break would end an #SBATCH line, and what follows would be run.
    if not text.isprintable():
        raise ValueError("expected one line of printable text")
    return text


Word = Annotated[str, Field(min_length=1), AfterValidator(_is_one_line)]
# A bare number is minutes, as sbatch has it.
Duration = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    AfterValidator(_is_duration),
]
# Long options of sbatch by name. True is an option without a value; False leaves one of ours out.
Options = Mapping[
    Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], Word | bool | Annotated[int, Field()]
]
PositiveInt = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SlurmReportConfig(_Section):
    """The CPU job that scores, compacts and reports when the array has ended."""

    partition: Word | None = None
    time: Duration = "1:00:00"
    cpus_per_task: PositiveInt = 4
    mem: Word | None = None
    sbatch: Options = {}


class SlurmConfig(_Section):
    """One task of the array is one worker for each group of GPUs, or one engine over its nodes."""

    # Tasks of the array, and how many of them may run at once.
    tasks: PositiveInt = 1
    throttle: PositiveInt | None = None
    # GPUs of a task, on each of its nodes: a multiple of what one engine needs; 0 for the CPU.
    gpus_per_task: Annotated[int, Field(ge=0)] = 1
    # More than 1 where one engine needs several nodes: it gets all of their GPUs.
    nodes_per_task: PositiveInt = 1
    cpus_per_task: PositiveInt | None = None
    mem: Word | None = None
    time: Duration = "4:00:00"
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    # Features that a node must have, as sbatch --constraint takes them.
    constraint: Word | None = None
    nodelist: Word | None = None
    # A task is told to stop so long before its limit; a quarter of a short limit at most.
    signal_s: PositiveInt = 300
    # A task that was stopped queues itself again at most so often.
    max_requeues: Annotated[int, Field(ge=0)] = 10
    # Lines of shell that come before the command, like `module load cuda`.
    setup: tuple[Word, ...] = ()
    # Any other long option of sbatch, by its name; it replaces ours of the same name.
    sbatch: Options = {}
    report: SlurmReportConfig = SlurmReportConfig()

    @property
    def lead_s(self) -> int:
        """Seconds between the signal and the limit."""
        return min(self.signal_s, max(1, (parse_duration_s(self.time) or 0) // 4))
