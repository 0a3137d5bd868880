"""The commands of `rel-batch`, one function each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rel_batch.cli.data import baselines, data

app = typer.Typer(
    name="rel-batch",
    help="Evaluate open-weight checkpoints on REL with constrained decoding.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.add_typer(data, name="data")
app.command()(baselines)

ConfigPath = Annotated[Path, typer.Argument(help="YAML file that describes the run.")]
RunPath = Annotated[Path, typer.Argument(help="Run folder, for example outputs/quickstart.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one value; may be repeated."),
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", metavar="ARM", help="Compare the other arms with this one."),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out bad lines, count and list them.")
]


@app.command()
def run(
    config: ConfigPath,
    set_: Overrides = None,
    skip_bad: SkipBad = False,
    output_dir: Annotated[
        str | None, typer.Option("-o", "--output-dir", help="Parent of the run folder.")
    ] = None,
) -> None:
    """Run a config: generate what is missing, score it, and print the table."""
    from rel_batch.cli.progress import terminal_progress
    from rel_batch.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED
    from rel_batch.launch.local import run_locally

    overrides = list(set_ or [])
    if output_dir is not None:
        overrides.append(f"output_dir={output_dir}")
    settings = _config(config, overrides, skip_bad=skip_bad)
    try:
        outcome = run_locally(settings, terminal_progress())
    except KeyboardInterrupt:
        typer.echo("interrupted; finished rows are kept: run the same command to go on", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _print_table(outcome.run)
    if outcome.num_missing:
        typer.echo(
            f"incomplete: {outcome.num_missing} requests have no row yet; run the same command",
            err=True,
        )
        raise typer.Exit(EXIT_INCOMPLETE)


@app.command()
def check(config: ConfigPath, set_: Overrides = None, skip_bad: SkipBad = False) -> None:
    """Read, validate, render and compile everything that a run needs; generate nothing."""
    from rel_batch.cli.overview import print_check
    from rel_batch.errors import EngineError
    from rel_batch.launch.prepare import prepare

    prepared = prepare(_config(config, list(set_ or []), skip_bad=skip_bad))
    rejected = prepared.rejected_constraints()
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
    _print_table(folder)


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
            _print_table(folder)


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


def _config(path: Path, overrides: list[str], *, skip_bad: bool) -> Any:
    from rel_batch.config import read_config

    if skip_bad:
        overrides = [*overrides, "instances.skip_bad=true"]
    return read_config(path, overrides)


def _print_table(folder: Any) -> None:
    from rich.console import Console

    from rel_batch.report import render_table, summarise

    console = Console()
    console.print(render_table(summarise(folder), width=console.width))
