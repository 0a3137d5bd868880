"""`rel-batch slurm ...`: a run on a cluster, as an array of alike tasks."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

slurm = typer.Typer(help="Run on a SLURM cluster: submit, watch, cancel.", no_args_is_help=True)

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one value; may be repeated."),
]
AllowRejected = Annotated[
    bool, typer.Option("--allow-rejected", help="Also where constraints do not compile.")
]
RunPath = Annotated[Path, typer.Argument(help="Run folder, for example outputs/night.")]


@slurm.command()
def submit(
    config: Annotated[Path, typer.Argument(help="YAML file that describes the run.")],
    tasks: Annotated[int | None, typer.Option(min=1, help="Tasks of the array.")] = None,
    throttle: Annotated[int | None, typer.Option(min=1, help="How many may run at once.")] = None,
    gpus_per_task: Annotated[int | None, typer.Option(min=0, help="0 for the CPU.")] = None,
    nodes_per_task: Annotated[
        int | None, typer.Option(min=1, help="Where one engine needs several.")
    ] = None,
    partition: Annotated[str | None, typer.Option()] = None,
    account: Annotated[str | None, typer.Option()] = None,
    time: Annotated[str | None, typer.Option(help="Limit of a task, like 4:00:00.")] = None,
    qos: Annotated[str | None, typer.Option()] = None,
    constraint: Annotated[str | None, typer.Option(help="Features of the nodes.")] = None,
    nodelist: Annotated[str | None, typer.Option()] = None,
    max_requeues: Annotated[int | None, typer.Option(min=0, help="Of one task.")] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Any other option of sbatch; may be repeated."),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="JOB", help="Start when this job has ended.")
    ] = None,
    set_: Overrides = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Show the scripts; prepare and submit nothing.")
    ] = False,
    parsable: Annotated[
        bool, typer.Option("--parsable", help="Print only the ids: ARRAY REPORT.")
    ] = False,
    allow_rejected: AllowRejected = False,
) -> None:
    """Prepare a run here, then queue an array that works on it and a job that reports."""
    from rel_batch.config import read_config
    from rel_batch.launch.slurm import Slurm
    from rel_batch.launch.slurm_submit import (
        array_script,
        home_file,
        report_script,
        slurm_settings,
    )
    from rel_batch.launch.slurm_submit import submit as submit_run

    settings = read_config(config, set_ or ())
    given: dict[str, Any] = {
        "tasks": tasks,
        "throttle": throttle,
        "gpus_per_task": gpus_per_task,
        "nodes_per_task": nodes_per_task,
        "partition": partition,
        "account": account,
        "time": time,
        "qos": qos,
        "constraint": constraint,
        "nodelist": nodelist,
        "max_requeues": max_requeues,
        "sbatch": _options(sbatch) or None,
    }
    given = {key: value for key, value in given.items() if value is not None}
    cluster = slurm_settings(settings, given, home_file())
    if print_:
        typer.echo(array_script(settings, cluster, after=after))
        typer.echo(report_script(settings, cluster, "ARRAY_JOB"))
        return
    found = Slurm.find()
    if not _prepared(settings, allow_rejected=allow_rejected, quiet=parsable):
        return
    queued = submit_run(settings, cluster, found, after=after)
    if parsable:
        typer.echo(f"{queued.array_job} {queued.report_job}")
        return
    run = shlex.quote(str(settings.folder))
    typer.echo(f"array job {queued.array_job}: {queued.tasks} tasks")
    typer.echo(f"report job {queued.report_job}: starts when the array has ended")
    typer.echo(
        f"next:\n  rel-batch slurm status {run}\n  rel-batch slurm cancel {run}\n"
        f"  tail -f {run}/logs/*-{queued.array_job}_0.log"
    )


@slurm.command()
def prepare(
    config: Annotated[Path, typer.Argument(help="YAML file that describes the run.")],
    set_: Overrides = None,
    allow_rejected: AllowRejected = False,
) -> None:
    """Prepare a run here and queue nothing, for scripts like those in slurm/."""
    from rel_batch.config import read_config

    settings = read_config(config, set_ or ())
    if _prepared(settings, allow_rejected=allow_rejected, quiet=False):
        typer.echo(f"next:\n  sbatch slurm/array.sbatch {shlex.quote(str(settings.folder))}")


@slurm.command()
def task(
    run: RunPath,
    max_requeues: Annotated[int, typer.Option(min=0, help="Of this task.")] = 10,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder of this task's caches; removed at the end.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="One for each group of GPUs if left out.")
    ] = None,
) -> None:
    """Work on a run as a task of an array; scripts call this."""
    # What comes while the imports below take their seconds waits until `run_task` listens.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR2, signal.SIGTERM))
    from rel_batch.cli.progress import terminal_progress
    from rel_batch.errors import EXIT_INCOMPLETE
    from rel_batch.launch.slurm_task import run_task

    num_missing = run_task(
        run, terminal_progress(), max_requeues=max_requeues, scratch=scratch, workers=workers
    )
    if num_missing:
        raise typer.Exit(EXIT_INCOMPLETE)


@slurm.command()
def finish(run: RunPath) -> None:
    """Score, compact and report a run when its array has ended; scripts call this."""
    from rel_batch.errors import EXIT_INCOMPLETE
    from rel_batch.launch.slurm_finish import finish_run

    done = finish_run(run, lambda message: typer.echo(message))
    if done.page is not None:
        typer.echo(f"report: {done.page}")
    if done.num_missing:
        typer.echo(
            f"incomplete: {done.num_missing:,} requests have no row; submit the same config again",
            err=True,
        )
        raise typer.Exit(EXIT_INCOMPLETE)


@slurm.command()
def status(run: RunPath) -> None:
    """Show what SLURM says of a run's tasks beside what the run folder says."""
    from rel_batch.cli.slurm_tables import print_status
    from rel_batch.launch.slurm import Slurm
    from rel_batch.store import RunFolder

    print_status(RunFolder.open(run), Slurm.find())


@slurm.command()
def cancel(
    run: RunPath,
    now: Annotated[
        bool, typer.Option("--now", help="End everything at once, the report job as well.")
    ] = False,
) -> None:
    """Stop a run's tasks gently: what has finished is kept, and the report job still reports."""
    from rel_batch.launch.slurm import Slurm
    from rel_batch.launch.slurm_watch import cancel as cancel_run
    from rel_batch.store import RunFolder

    RunFolder.open(run)
    done = cancel_run(run, Slurm.find(), now=now)
    if not done:
        typer.echo("no task of this run waits or runs")
    for array in done:
        what = "are ended" if now else "finish what they have and end"
        typer.echo(
            f"array job {array.submission.array_job}: {array.num_waiting} tasks left the queue, "
            f"{array.num_running} that run {what}"
        )
        if not now and array.submission.report_job is not None:
            typer.echo(f"report job {array.submission.report_job} follows")


def _prepared(settings: Any, *, allow_rejected: bool, quiet: bool) -> bool:
    """Prepare a run, and say whether anything is left to do in it."""
    from rel_batch.launch.slurm_submit import prepare_run

    found = prepare_run(settings, allow_rejected=allow_rejected)
    typer.echo(
        f"{settings.folder}: {found.num_requests:,} requests, {found.num_missing:,} of them "
        "without a row",
        err=quiet,
    )
    if not found.num_missing:
        typer.echo(
            f"nothing is left to run; see it with: rel-batch report "
            f"{shlex.quote(str(settings.folder))}",
            err=quiet,
        )
    return found.num_missing > 0


def _options(pairs: list[str] | None) -> dict[str, Any]:
    """`key=value` for sbatch; `key` alone is an option without a value."""
    from rel_batch.errors import ConfigError

    options: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        key = key.strip().removeprefix("--")
        if not key:
            raise ConfigError(f"--sbatch {pair!r}: expected key=value, like --sbatch mem=64G")
        options[key] = value if equals else True
    return options
