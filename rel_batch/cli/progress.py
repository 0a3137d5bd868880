"""What a person sees while a run goes on: a bar on a terminal, a line every 30 s elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rel_batch.launch.progress import Progress as RunProgress
from rel_batch.records import Completion
from rel_batch.scoring import PartTally

_LINE_EVERY_S = 30.0


def terminal_progress() -> RunProgress:
    """A bar where standard error is a terminal, else plain lines."""
    return BarProgress() if sys.stderr.isatty() else LineProgress()


class _Counts:
    """Running figures of this process's work."""

    def __init__(self) -> None:
        self.total = 0
        self.rows = 0
        self.new_rows = 0
        self.num_tokens = 0
        self.started = time.monotonic()
        self.statuses: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()

    def begin(self, total: int, finished: int) -> None:
        self.total, self.rows = total, finished
        self.started = time.monotonic()

    def completed(self, completion: Completion) -> None:
        if self.new_rows == 0:
            # Loading the engine is no part of the speed of generation.
            self.started = time.monotonic() - completion.latency_s
        self.rows += 1
        self.new_rows += 1
        self.num_tokens += completion.num_output_tokens
        self.statuses[completion.status] += 1

    def scored(self, tally: PartTally) -> None:
        self.verdicts["correct"] += tally.correct
        self.verdicts["unparsed"] += tally.unparsed
        self.verdicts["all"] += tally.rows

    def text(self) -> str:
        """tokens/s, running accuracy with its n, and what went wrong."""
        elapsed_s = max(time.monotonic() - self.started, 1e-3)
        parts = [f"{self.num_tokens / elapsed_s:,.0f} tokens/s"]
        scored = self.verdicts["all"]
        if scored:
            parts.append(f"correct {self.verdicts['correct'] / scored:.1%} of {scored} scored")
            parts.append(f"unparsed {self.verdicts['unparsed']}")
        parts.append(f"truncated {self.statuses['truncated']}")
        parts += [
            f"{status} {count}"
            for status, count in sorted(self.statuses.items())
            if status not in ("ok", "truncated")
        ]
        return ", ".join(parts)

    def eta_s(self) -> float | None:
        """Seconds to the end at the speed so far."""
        if not self.new_rows:
            return None
        elapsed_s = time.monotonic() - self.started
        return elapsed_s / self.new_rows * (self.total - self.rows)


class LineProgress:
    """Plain lines on standard error, for logs."""

    def __init__(self) -> None:
        self._counts = _Counts()
        self._last = time.monotonic()

    def say(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def begin(self, total: int, finished: int) -> None:
        self._counts.begin(total, finished)
        self.say(f"{finished} of {total} rows are there")

    def completed(self, completion: Completion) -> None:
        self._counts.completed(completion)
        now = time.monotonic()
        if now - self._last >= _LINE_EVERY_S:
            self._last = now
            self._line()

    def scored(self, tally: PartTally) -> None:
        self._counts.scored(tally)

    def end(self) -> None:
        self._line()

    def _line(self) -> None:
        counts = self._counts
        eta_s = counts.eta_s()
        eta = "" if eta_s is None or counts.rows >= counts.total else f", ETA {_duration(eta_s)}"
        self.say(f"{counts.rows}/{counts.total} rows, {counts.text()}{eta}")


class BarProgress:
    """A bar on the terminal (standard error); messages scroll above it."""

    def __init__(self) -> None:
        self._counts = _Counts()
        self._console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} rows"),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=None, figures="", visible=False)

    def say(self, message: str) -> None:
        self._console.print(message, markup=False, highlight=False)

    def begin(self, total: int, finished: int) -> None:
        self._counts.begin(total, finished)
        self._bar.start()
        self._bar.update(self._task, total=total, completed=finished, visible=True)

    def completed(self, completion: Completion) -> None:
        self._counts.completed(completion)
        self._update()

    def scored(self, tally: PartTally) -> None:
        self._counts.scored(tally)
        self._update()

    def end(self) -> None:
        self._update()
        self._bar.stop()

    def _update(self) -> None:
        self._bar.update(self._task, completed=self._counts.rows, figures=self._counts.text())


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
