"""How the status of a run looks on a terminal, and for a program."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rel_batch.status import RunStatus, Watcher, WorkerStatus
from rel_batch.store import RunFolder
from rel_batch.worker import FAILURES

_MOST_WORKERS = 24
# Columns of a terminal that show all of a worker, and that show its speed.
_ROOMY = 96
_TIGHT = 60
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def show_status(run: RunFolder, *, every_s: float | None, as_json: bool) -> None:
    """Print the status once, or every so many seconds until the run is complete.

    Raises StoreError and KeyboardInterrupt.
    """
    console = Console()
    looks = _looks(Watcher(run), every_s)
    if as_json:
        for found in looks:
            print(json.dumps(to_dict(found)), flush=True)
    elif every_s is None or not console.is_terminal:
        for found in looks:
            console.print(render_status(found, console.width))
    else:
        with Live(console=console, auto_refresh=False) as live:
            for found in looks:
                live.update(render_status(found, console.width), refresh=True)


def _looks(watcher: Watcher, every_s: float | None) -> Iterator[RunStatus]:
    while True:
        found = watcher.look()
        yield found
        if every_s is None or found.complete:
            return
        time.sleep(every_s)


def to_dict(found: RunStatus) -> dict[str, object]:
    """The status for a program; numbers as they are, absent ones null."""
    return {**dataclasses.asdict(found), "complete": found.complete}


def render_status(found: RunStatus, width: int) -> RenderableType:
    """The status as lines of at most `width` columns."""
    head = Text.assemble(
        (found.run, "bold"),
        f"  {found.num_rows:,} of {found.num_requests:,} rows, {found.share_done:.1%} of the work",
    )
    bar = Table.grid()  # a bar of its own ends without a new line
    bar.add_row(ProgressBar(total=1.0, completed=found.share_done, width=max(10, min(width, 100))))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    chunks = found.chunks
    facts.add_row(
        "chunks", f"{chunks.done:,} done, {chunks.claimed:,} claimed, {chunks.waiting:,} waiting"
    )
    facts.add_row("rows", _statuses(found, width - len("chunks  ")))
    facts.add_row(
        "speed",
        f"{found.tokens_per_s_now:,.0f} tokens/s now, {found.tokens_per_s:,.0f} on average",
    )
    facts.add_row("left", _left(found))
    disk = found.disk
    facts.add_row(
        "disk",
        f"{_size(disk.completions)} completions, {_size(disk.scores)} scores, {_size(disk.other)} "
        f"other; {_size(disk.free)} free",
    )
    if disk.needed is not None and disk.needed > disk.free:
        warning = f"the missing rows will need about {_size(disk.needed)}"
        facts.add_row("", Text(warning, style="bold red"))
    return Group(head, bar, facts, *_workers(found, width))


def _workers(found: RunStatus, width: int) -> Iterator[RenderableType]:
    there = [worker for worker in found.workers if worker.state != "gone"]
    gone = len(found.workers) - len(there)
    if there:
        yield Text()
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("worker", overflow="ellipsis", no_wrap=True)
        table.add_column("chunks", overflow="fold")
        table.add_column("heard of", justify="right", no_wrap=True)
        roomy = width >= _ROOMY
        # What there is no room for is left out, the speed last.
        more = ["rows", "tokens/s", "average"] if roomy else ["tokens/s"] if width >= _TIGHT else []
        for name in more:
            table.add_column(name, justify="right", no_wrap=True)
        for worker in there[:_MOST_WORKERS]:
            numbers = {
                "rows": worker.num_rows,
                "tokens/s": worker.tokens_per_s_now,
                "average": worker.tokens_per_s,
            }
            table.add_row(
                worker.worker,
                _claims(worker, 3 if roomy else 1),
                _heard(worker),
                *(f"{numbers[name]:,.0f}" for name in more),
                style="" if worker.state == "alive" else "red",
            )
        yield table
    if len(there) > _MOST_WORKERS:
        yield Text(f"and {len(there) - _MOST_WORKERS:,} more workers (--json shows all)")
    if gone:
        yield Text(f"{gone:,} worker{'s have' if gone > 1 else ' has'} left", style="dim")
    if not there and not found.complete:
        yield Text("no worker is there: start the same command, or rel-batch join", style="yellow")


def _statuses(found: RunStatus, width: int) -> Text:
    """The rows by status, failures in red; a status stays on one line with its number."""
    text, length = Text(), 0
    for status, number in found.statuses.items():
        shown = f"{status} {number:,}"
        if length:
            text.append(", " if length + 3 + len(shown) <= width else ",\n")
            length = length + 2 if length + 3 + len(shown) <= width else 0
        text.append(shown, "red" if status in FAILURES else "")
        length += len(shown)
    return text or Text("none")


def _claims(worker: WorkerStatus, most: int) -> str:
    claims = sorted(worker.claims.items())[:most]
    shown = [f"{chunk} ({_duration(age_s)})" for chunk, age_s in claims]
    more = len(worker.claims) - len(shown)
    rest = "" if not more else f" and {more} more" if most > 1 else f" +{more}"
    return ", ".join(shown) + rest or "-"


def _heard(worker: WorkerStatus) -> str:
    if worker.heartbeat_age_s is None:
        return "never"
    late = " LATE" if worker.state == "late" else ""
    return f"{_duration(worker.heartbeat_age_s)} ago{late}"


def _left(found: RunStatus) -> str:
    if found.complete:
        return "nothing: complete"
    if found.eta_s is None:
        return "unknown: nothing moves"
    ends = time.strftime("%a %H:%M", time.localtime(found.at + found.eta_s))
    return f"{_duration(found.eta_s)}, until {ends}"


def _size(num_bytes: int) -> str:
    size = float(num_bytes)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"
