"""`rel-batch status` and `rel-batch compact`: look at a run's folder, and tidy it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunPath = Annotated[Path, typer.Argument(help="Run folder, for example outputs/night.")]


def status(
    run: RunPath,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until the run is complete.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON, one line for each look.")] = False,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, help="Seconds between two looks.")
    ] = 5.0,
) -> None:
    """Say how far a run is and who works on it; reads files only, from any machine."""
    from rel_batch.cli.status_view import show_status
    from rel_batch.errors import EXIT_INTERRUPTED
    from rel_batch.store import RunFolder

    try:
        show_status(RunFolder.open(run), every_s=every_s if watch else None, as_json=json)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def compact(run: RunPath) -> None:
    """Merge a run's parts into few sorted files per arm; safe at any moment."""
    from rel_batch.scoring import score_run
    from rel_batch.store import RunFolder
    from rel_batch.store import compact as merge_parts

    folder = RunFolder.open(run)
    settings = folder.manifest.get("config", {}).get("scoring", {})
    # The scores of a merged file are complete or absent.
    score_run(
        folder,
        overlap=bool(settings.get("overlap", False)),
        audited=bool(settings.get("audited", False)),
    )
    done = merge_parts(folder)
    typer.echo(f"{done.num_before} files before, {done.num_after} now; {done.num_rows} rows merged")
    if done.num_unscored:
        typer.echo(
            f"{done.num_unscored} files were left: they are not scored in every version that is "
            f"in {folder.path / 'scores'}",
            err=True,
        )
