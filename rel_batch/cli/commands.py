"""The commands of `rel-batch`, one function each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rel_batch.cli.data import baselines, data
from rel_batch.cli.running import (
    ConfigPath,
    Overrides,
    RunPath,
    SkipBad,
    join,
    print_table,
    read_settings,
    run,
)
from rel_batch.cli.slurm import slurm
from rel_batch.cli.watching import compact, status

app = typer.Typer(
    name="rel-batch",
    help="Evaluate open-weight checkpoints on REL with constrained decoding.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.add_typer(data, name="data")
app.add_typer(slurm, name="slurm")
app.command()(baselines)
app.command()(run)
app.command()(join)
app.command()(status)
app.command()(compact)

Baseline = Annotated[
    str | None,
    typer.Option("--baseline", metavar="ARM", help="Compare the other arms with this one."),
]


@app.command()
def check(config: ConfigPath, set_: Overrides = None, skip_bad: SkipBad = False) -> None:
    """Read, validate, render and compile everything that a run needs; generate nothing."""
    from rel_batch.cli.overview import print_check
    from rel_batch.errors import EngineError
    from rel_batch.launch.prepare import prepare

    prepared = prepare(read_settings(config, list(set_ or []), skip_bad=skip_bad))
    rejected = prepared.rejected_constraints
    print_check(prepared, rejected)
    if rejected:
        raise EngineError(
            f"{len(rejected)} constraints do not compile with {prepared.config.engine.backend}; "
            f"the first: {next(iter(rejected.values()))}",
            hint="a run gives these requests the status constraint_rejected",
        )


@app.command()
def score(
    run: RunPath,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="REL-C2: the common substructure's share (slow).")
    ] = False,
    audited: Annotated[
        bool, typer.Option("--audited", help="Also by gold without its known faults.")
    ] = False,
) -> None:
    """Score a run's completions again and print the table; needs no GPU, vllm or torch."""
    from rel_batch.scoring import score_run
    from rel_batch.store import RunFolder

    folder = RunFolder.open(run)
    score_run(folder, overlap=overlap, audited=audited)
    print_table(folder)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One run folder or more.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the whole report into a folder.")
    ] = None,
    baseline: Baseline = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print a run's table, or write the report of one run or several with -o."""
    from rel_batch.store import RunFolder

    folders = [RunFolder.open(run) for run in runs]
    if output is not None:
        from rel_batch.cli.reports import write_report

        typer.echo(write_report(folders, output, baseline))
        return
    for folder in folders:
        if json:
            from rel_batch.report import summarise, to_json

            typer.echo(to_json(summarise(folder)))
        else:
            print_table(folder)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The run that is compared with.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The other run.")],
) -> None:
    """Compare two runs, or the arms of one run given twice, on the instances that both have."""
    from rel_batch.cli.reports import print_comparison
    from rel_batch.store import RunFolder

    folders = [RunFolder.open(a)]
    if a.resolve() != b.resolve():
        folders.append(RunFolder.open(b))
    print_comparison(folders)


@app.command()
def tasks(
    task: Annotated[str | None, typer.Argument(help="For example REL-C3; all if left out.")] = None,
    constraints: Annotated[
        bool, typer.Option("--constraints", help="Only the constraints of the task, each kind.")
    ] = False,
) -> None:
    """List the tasks, or show a task's prompt, constraint and reference reply."""
    from rel_batch.cli.overview import print_task, print_tasks

    if task is None:
        print_tasks()
    else:
        print_task(task, only_constraints=constraints)


@app.command()
def export(
    run: RunPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="A .parquet or .jsonl file.")],
) -> None:
    """Write one file of a run's completions joined with their scores."""
    from rel_batch.report import export_run
    from rel_batch.store import RunFolder

    rows = export_run(RunFolder.open(run), output)
    typer.echo(f"{rows} rows in {output}")


def _version(value: bool) -> None:
    if value:
        from rel_batch import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
