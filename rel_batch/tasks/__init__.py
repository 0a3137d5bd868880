"""The nine REL tasks, by name.

    >>> task_for("REL-C1").title
    'constitutional isomers?'

To add a task, write one file beside this one and list its tasks in `TASKS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rel_batch.errors import ConfigError, unknown_name
from rel_batch.tasks.algebra import ALGEBRA_TASKS
from rel_batch.tasks.homoplasy import HOMOPLASY_TASK
from rel_batch.tasks.isomer_sets import ISOMER_SET_TASK
from rel_batch.tasks.isomers import MISSING_ISOMERS_TASK
from rel_batch.tasks.motif_selections import MOTIF_SELECTION_TASK
from rel_batch.tasks.motifs import COMMON_MOTIF_TASK
from rel_batch.tasks.task import Task

__all__ = ["TASKS", "Task", "task_for"]

_ALL: tuple[Task, ...] = (
    *ALGEBRA_TASKS,
    HOMOPLASY_TASK,
    ISOMER_SET_TASK,
    COMMON_MOTIF_TASK,
    MISSING_ISOMERS_TASK,
    MOTIF_SELECTION_TASK,
)

TASKS: Mapping[str, Task] = MappingProxyType(
    {task.name: task for task in sorted(_ALL, key=lambda task: task.name)}
)


def task_for(name: str) -> Task:
    """The task of that name. Raises ConfigError, with the nearest known name."""
    if name not in TASKS:
        raise ConfigError(unknown_name("task", name, TASKS))
    return TASKS[name]
