"""`rel-batch data ...` and `rel-batch baselines`: what is evaluated, and what needs no model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

data = typer.Typer(
    help="Fetch, generate, show, count and audit REL instances.", no_args_is_help=True
)

Sources = Annotated[
    list[str], typer.Argument(help="Files, folders, globs, 'bundled' or 'hub'.", metavar="FILE...")
]
_RANGE = re.compile(r"([0-9]{1,6})(?:\.\.([0-9]{1,6}))?")
_MAX_LEVELS = 1_000


@data.command()
def fetch(
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of ada-f/rel; main if left out.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also copy the files into this folder.")
    ] = None,
) -> None:
    """Get the released set from the Hugging Face Hub and check what is in it."""
    from rel_batch.cli.data_tables import print_release
    from rel_batch.errors import ConfigError
    from rel_batch.instances.hub import copy_release, fetch_release

    if output is not None and output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file; -o needs a folder")
    release = fetch_release(revision)
    if output is not None:
        copy_release(release, output)
    print_release(release, output)


@data.command()
def generate(
    task: Annotated[str, typer.Option(help="For example REL-A3.")],
    per_level: Annotated[int, typer.Option(help="Instances for each RC.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A .jsonl file.")],
    rc: Annotated[
        str | None, typer.Option(help="RC levels: 5, 3..15 or 2,4,8; the task's own if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    hold: Annotated[
        str | None, typer.Option(help="What stays fixed while RC varies: entities or length.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Entities that a question shows (n of an n x n matrix).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write fresh instances that no checkpoint has seen, each with a certificate of its gold."""
    from rel_batch.errors import ConfigError
    from rel_batch.instances.generate import generate as make
    from rel_batch.instances.generate import render_record
    from rel_batch.store.disk import writing

    levels = None if rc is None else _levels(rc)
    records = make(task, rc=levels, per_level=per_level, seed=seed, hold=hold, size=size)
    if output.suffix != ".jsonl":
        raise ConfigError(f"{output}: instances are JSON Lines", hint="give it the suffix .jsonl")
    if output.exists() and not force:
        raise ConfigError(f"{output} is there already", hint="choose another name, or use --force")
    count = 0
    with writing(output, replace=True) as file:
        for count, record in enumerate(records, start=1):  # noqa: B007
            file.write(render_record(record).encode("ascii") + b"\n")
    typer.echo(f"{count} records in {output}")


def _levels(text: str) -> list[int]:
    """RC levels of "3..15", "2,4,8" or both. Raises ConfigError."""
    from rel_batch.errors import ConfigError

    levels: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if low > high or high - low >= _MAX_LEVELS:
            raise ConfigError(
                f"--rc {text!r}: cannot read {part.strip()!r}",
                hint="write 5, or 3..15, or 2,4,8; the lower level first",
            )
        levels += range(low, high + 1)
    if len(set(levels)) != len(levels):
        raise ConfigError(f"--rc {text!r} names a level twice")
    return levels


@data.command()
def show(
    what: Annotated[str, typer.Argument(help="A file (a folder, 'bundled', ...), an id or a key.")],
    source: Annotated[
        str, typer.Option("--in", help="Where an id or a key is looked for.")
    ] = "bundled",
    limit: Annotated[int, typer.Option("-n", min=1, help="How many records of a file.")] = 1,
    notation: Annotated[
        str, typer.Option("--taxa-notation", help="REL-B1's gold: names, positions or auto.")
    ] = "auto",
) -> None:
    """Print records: the question, the gold, and what a reply may be."""
    from rel_batch.cli.data_tables import print_instance
    from rel_batch.instances.find import find_instances

    for instance in find_instances(what, source, limit, notation):
        print_instance(instance)


@data.command()
def stats(
    sources: Sources,
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or Hub id: also count tokens, template left out.")
    ] = None,
    notation: Annotated[
        str, typer.Option("--taxa-notation", help="REL-B1's gold: names, positions or auto.")
    ] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out bad lines.")] = False,
) -> None:
    """Count instances by task and subset: RC, entities, lengths."""
    from rel_batch.cli.data_tables import print_stats
    from rel_batch.instances import read_instances
    from rel_batch.instances.find import notation_named
    from rel_batch.prompts import load_tokenizer

    found = read_instances(sources, taxa_notation=notation_named(notation), skip_bad=skip_bad)
    loaded = tokenizer and load_tokenizer(tokenizer, revision=None, trust_remote_code=False)
    print_stats(found, loaded)


@data.command()
def audit(
    sources: Sources,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .parquet file for the findings.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="As many as there are CPUs if left out.")
    ] = None,
) -> None:
    """Derive every gold afresh from its question, and report where it is wrong or not unique."""
    from rel_batch.cli.data_tables import print_audit, progress_line
    from rel_batch.errors import ConfigError
    from rel_batch.instances.audit.summary import summarise_audit
    from rel_batch.launch.audit import audit_files
    from rel_batch.store.parquet import write_rows
    from rel_batch.store.schemas import AUDIT

    if output is not None and (output.suffix != ".parquet" or not output.parent.is_dir()):
        raise ConfigError(
            f"cannot write {output}", hint="-o is a .parquet file in a folder that exists"
        )
    with progress_line("audited") as on_progress:
        rows = audit_files(sources, processes=processes, on_progress=on_progress)
    if output is not None:
        write_rows(output, AUDIT, rows, replace=True)
    print_audit(summarise_audit(rows))
    if output is not None:
        typer.echo(f"{len(rows)} rows in {output}")


def baselines(
    config: Annotated[Path, typer.Argument(help="YAML file that describes the run.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one value; may be repeated."),
    ] = None,
) -> None:
    """Score the shortcuts that need no model on a config's instances."""
    from rel_batch.cli.data_tables import print_baselines, row_line
    from rel_batch.config import read_config
    from rel_batch.launch.prepare import read_configured
    from rel_batch.report.baselines import measure_baselines, publish_baselines
    from rel_batch.store.manifest import read_manifest

    settings = read_config(config, list(set_ or []))
    instances, _ = read_configured(settings.instances)
    with row_line() as on_row:
        rows = measure_baselines(instances, seed=settings.seed, on_progress=on_row)
    print_baselines(rows)
    if read_manifest(settings.folder) is None:
        typer.echo(f"there is no run in {settings.folder} yet, so these are not kept")
    else:
        typer.echo(f"kept in {publish_baselines(settings.folder, rows)}")
