"""What `data ...` and `baselines` print."""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rel_batch.instances.audit import MEANINGS
from rel_batch.instances.audit.summary import AuditSummary
from rel_batch.instances.hub import PUBLISHED_TOTAL, REPO, Release
from rel_batch.records import Instance
from rel_batch.report import wilson
from rel_batch.report.baselines import BaselineRow
from rel_batch.tasks import task_for

_LINE_EVERY_S = 10.0


def _table(*headings: str, right: Iterable[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


def _say(*lines: str) -> None:
    for line in lines:
        Console().print(Text(line), soft_wrap=True)


@contextlib.contextmanager
def progress_line(verb: str) -> Generator[Callable[[int, int], None]]:
    """Tells standard error every 10 s how many of how many are done."""
    last = time.monotonic()

    def on_progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            print(f"{verb} {done} of {total}", file=sys.stderr, flush=True)

    yield on_progress


@contextlib.contextmanager
def row_line() -> Generator[Callable[[BaselineRow], None]]:
    """Tells standard error every 10 s which baseline was measured last."""
    last = time.monotonic()

    def on_row(row: BaselineRow) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            print(f"measured {row.task} {row.subset}: {row.baseline}", file=sys.stderr, flush=True)

    yield on_row


def print_release(release: Release, copied_to: Path | None) -> None:
    """Each file with its count and hash, and where they are."""
    table = _table("file", "records", "sha256", right=["records"])
    for name, file in release.files.items():
        table.add_row(name, f"{file.num_records:,}", file.sha256[:16])
    Console().print(table)
    total = release.num_records
    published = "as published" if total == PUBLISHED_TOTAL else f"published: {PUBLISHED_TOTAL:,}"
    _say(
        f"{total:,} records ({published}) of {REPO} at {release.commit}",
        f"in {copied_to or release.folder}",
    )


def print_instance(instance: Instance) -> None:
    """One instance in full."""
    console = Console()

    def section(heading: str, text: str) -> None:
        console.print(Text(heading, style="bold"))
        console.print(Text(text), soft_wrap=True)
        console.print()

    section(
        f"{instance.task}  {instance.id}",
        f"key {instance.key}, {instance.source_file}, subset {instance.subset}, RC {instance.rc}, "
        f"{instance.num_entities} entities",
    )
    section("question", instance.question)
    section("gold", json.dumps(dict(instance.answer), indent=2, default=dict))
    section("reference reply", task_for(instance.task).reference_reply(instance))


def print_stats(instances: Sequence[Instance], tokenizer: Any | None) -> None:
    """Counts, RC, entities and lengths by task and subset."""
    unit = "characters" if tokenizer is None else "tokens"
    numbers = ("n", "RC", "entities", "question", "longest", "gold reply", "longest reply")
    table = _table("task", "subset", *numbers, right=numbers)
    groups: dict[tuple[str, str], list[Instance]] = {}
    for instance in instances:
        groups.setdefault((instance.task, instance.subset), []).append(instance)
    for (task, subset), found in sorted(groups.items()):
        questions = _lengths([instance.question for instance in found], tokenizer)
        replies = _lengths([task_for(task).reference_reply(one) for one in found], tokenizer)
        table.add_row(
            *(task, subset, f"{len(found):,}"),
            _span([instance.rc for instance in found]),
            _span([instance.num_entities for instance in found]),
            *(f"{statistics.median(questions):,.0f}", f"{max(questions):,}"),
            *(f"{statistics.median(replies):,.0f}", f"{max(replies):,}"),
        )
    Console().print(table)
    _say(f"{len(instances):,} instances; lengths in {unit}: the median and the longest")
    skipped: Sequence[str] = getattr(instances, "skipped", ())
    if skipped:
        _say(f"{len(skipped)} bad lines left out:", *(f"  {line}" for line in skipped[:20]))


def _lengths(texts: list[str], tokenizer: Any | None) -> list[int]:
    if tokenizer is None:
        return [len(text) for text in texts]
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"


def print_audit(summary: AuditSummary) -> None:
    """What was found in each file, and what the findings mean."""
    table = _table("file", "records", "clean", "found", right=["records", "clean"])
    for file in summary.files:
        found = [f"{name} {count:,}" for name, count in sorted(file.findings.items())]
        found += [f"undecided {name} {count:,}" for name, count in sorted(file.undecided.items())]
        name = "/".join(Path(file.file).parts[-2:])
        table.add_row(name, f"{file.records:,}", f"{file.clean:,}", ", ".join(found) or "-")
    Console().print(table)
    lines = [f"{summary.records:,} records in {len(summary.files)} files"]
    for name, count in sorted(summary.findings.items()):
        lines.append(f"{name} {count:,}: {MEANINGS[name]}")
    if summary.colliding_ids:
        lines.append(f"{summary.colliding_ids:,} ids are of several records")
    if summary.absent_isomers:
        absent = sum(map(len, summary.absent_isomers.values()))
        lines.append(f"{absent:,} isomers of {len(summary.absent_isomers)} formulas are in no gold")
    for name, count in sorted(summary.undecided.items()):
        lines.append(f"undecided {name} {count:,}: neither a fault nor a clean bill")
    _say("", *lines)


def print_baselines(rows: Sequence[BaselineRow]) -> None:
    """One line a shortcut: the share of correct replies with its interval and n."""
    table = _table("task", "subset", "baseline", "n", "correct %", right=["n", "correct %"])
    for row in rows:
        rate = wilson(row.correct, row.n)
        figures = [f"{100 * (end or 0.0):.1f}" for end in (rate.estimate, rate.low, rate.high)]
        share = "{} [{}, {}]".format(*figures)
        name = row.baseline + (" *" if row.bears_on_rule else "")
        table.add_row(row.task, row.subset, name, str(row.n), share)
    Console().print(table)
    _say("* the task's rule itself or its opposite. 95% Wilson intervals; strict rules.")
