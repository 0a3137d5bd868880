"""`rel-batch run` and `rel-batch join`: the commands that generate."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import typer

ConfigPath = Annotated[Path, typer.Argument(help="YAML file that describes the run.")]
RunPath = Annotated[Path, typer.Argument(help="Run folder, for example outputs/quickstart.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one value; may be repeated."),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out bad lines, count and list them.")
]
MaxFailures = Annotated[
    str | None,
    typer.Option(
        "--max-failures",
        metavar="N|P%",
        help="Stop where more rows than this, or this share of them, are failures.",
    ),
]


def run(
    config: ConfigPath,
    set_: Overrides = None,
    skip_bad: SkipBad = False,
    output_dir: Annotated[
        str | None, typer.Option("-o", "--output-dir", help="Parent of the run folder.")
    ] = None,
    workers: Annotated[
        str,
        typer.Option(
            "--workers", metavar="auto|N", help="One for each GPU group, or so many processes."
        ),
    ] = "auto",
    max_failures: MaxFailures = None,
    append_arms: Annotated[
        bool, typer.Option("--append-arms", help="Add the config's new arms to its run.")
    ] = False,
) -> None:
    """Run a config: generate what is missing, score it, and print the table."""
    with _stopping() as stop:
        from rel_batch.cli.progress import terminal_progress
        from rel_batch.launch.local import run_locally

        overrides = list(set_ or [])
        if output_dir is not None:
            overrides.append(f"output_dir={output_dir}")
        outcome = run_locally(
            read_settings(config, overrides, skip_bad=skip_bad),
            terminal_progress(),
            workers=_num_workers(workers),
            stop=stop,
            max_failures=max_failures,
            append_arms=append_arms,
        )
        print_table(outcome.run)
        _say_what_is_missing(outcome)


def join(
    run: RunPath,
    max_failures: MaxFailures = None,
    worker: Annotated[str | None, typer.Option("--worker", hidden=True)] = None,
    cpus: Annotated[str | None, typer.Option("--cpus", hidden=True)] = None,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
    early: Annotated[int | None, typer.Option("--early", hidden=True)] = None,
) -> None:
    """Add a worker to a run, from any machine that sees its folder."""
    with _stopping() as stop:
        from rel_batch.engine.process import die_with_parent

        told: Any = None
        if supervised:
            import json

            die_with_parent()
            told = json.loads(sys.stdin.readline())
        if cpus is not None:
            os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])

        from rel_batch.cli.progress import terminal_progress
        from rel_batch.launch.joining import Supervised, join_run
        from rel_batch.worker import FailureLimit

        outcome = join_run(
            run,
            terminal_progress(),
            stop,
            worker=worker,
            info={"devices": os.environ.get("CUDA_VISIBLE_DEVICES"), "cpus": cpus},
            limit=FailureLimit.parse(max_failures),
            supervised=Supervised(told, sys.stdin.readline, early) if supervised else None,
        )
        _say_what_is_missing(outcome)


def read_settings(path: Path, overrides: list[str], *, skip_bad: bool) -> Any:
    """The config in a file, with what the command line overrides."""
    from rel_batch.config import read_config

    if skip_bad:
        overrides = [*overrides, "instances.skip_bad=true"]
    return read_config(path, overrides)


def print_table(folder: Any) -> None:
    """The table of a run, on standard output."""
    from rich.console import Console

    from rel_batch.report import render_table, summarise

    console = Console()
    console.print(render_table(summarise(folder), width=console.width))


@contextlib.contextmanager
def _stopping() -> Generator[Any]:
    """Signals end the block in good order, with exit code 7."""
    from rel_batch.errors import EXIT_INCOMPLETE
    from rel_batch.worker.stopping import StopRequested, stop_on_signals

    try:
        with stop_on_signals() as stop:
            yield stop
    except StopRequested as request:
        typer.echo(
            f"stopped by {request.reason}; finished rows are kept: run the same command to go on",
            err=True,
        )
        raise typer.Exit(EXIT_INCOMPLETE) from None


def _num_workers(text: str) -> int | None:
    from rel_batch.errors import ConfigError

    if text == "auto":
        return None
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise ConfigError(f"--workers {text!r}: expected a number from 1 on, or auto")


def _say_what_is_missing(outcome: Any) -> None:
    from rel_batch.errors import EXIT_INCOMPLETE

    if outcome.num_missing:
        typer.echo(
            f"incomplete: {outcome.num_missing} requests have no row yet; run the same command",
            err=True,
        )
        raise typer.Exit(EXIT_INCOMPLETE)
