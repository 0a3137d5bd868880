"""What `slurm status` prints."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rel_batch.cli.status_view import show_status
from rel_batch.launch.slurm import QueuedTask, Slurm
from rel_batch.launch.slurm_watch import ArrayView, read_arrays
from rel_batch.store import RunFolder

# Of a large array the first tasks that wait or run are shown one by one.
_SHOWN = 32


def print_status(run: RunFolder, slurm: Slurm) -> None:
    """The queue's view of a run's tasks, then the run's own, whose workers bear the tasks' names.

    Raises RelBatchError.
    """
    console = Console()
    arrays = read_arrays(run.path, slurm)
    if not arrays:
        console.print(Text(f"{run.path}: nothing was submitted to SLURM"))
    for array in arrays:
        _print_array(console, array)
    show_status(run, every_s=None, as_json=False)


def _print_array(console: Console, array: ArrayView) -> None:
    submission = array.submission
    states = ", ".join(f"{n} {state.lower()}" for state, n in array.count_states().most_common())
    console.print(Text(f"array job {submission.array_job}: {states}", style="bold"))
    table = Table(box=None, pad_edge=False)
    for heading in ("task", "state", "node", "elapsed", "left", "reason"):
        table.add_column(heading)
    alive = array.alive
    for task in alive[:_SHOWN]:
        _add(table, task)
    if alive:
        console.print(table)
    if len(alive) > _SHOWN:
        console.print(Text(f"... and {len(alive) - _SHOWN} more that wait or run"))
    report = "was refused" if submission.report_job is None else "is not known any more"
    if array.report is not None:
        report = array.report.state.lower()
        if array.report.reason not in ("", "None"):
            report += f" ({array.report.reason})"
    console.print(Text(f"report job {submission.report_job or ''}: {report}"))
    console.print()


def _add(table: Table, task: QueuedTask) -> None:
    reason = "" if task.reason == "None" else task.reason
    table.add_row(task.id, task.state.lower(), task.nodes, task.elapsed, task.left, reason)
