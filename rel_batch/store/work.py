"""Who has made the rows of a file, and when: a note that each file of completions carries.

    {"node3-gpu0": Work(num_rows=512, ..., started=1796071200.0, ended=1796071230.5)}

Nobody needs it to go on with a run: it says how fast the workers are (`status.py`), also from
another machine and after they are gone. Times are seconds since 1970 by the worker's clock.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rel_batch.records import Completion


@dataclass(frozen=True, slots=True)
class Work:
    """Rows that one worker has finished between `started` and `ended`."""

    num_rows: int
    num_prompt_tokens: int
    num_output_tokens: int
    started: float
    ended: float

    @classmethod
    def of(cls, completions: Sequence[Completion], started: float, ended: float) -> Work:
        return cls(
            num_rows=len(completions),
            num_prompt_tokens=sum(row.num_prompt_tokens for row in completions),
            num_output_tokens=sum(row.num_output_tokens for row in completions),
            started=started,
            ended=ended,
        )

    def __add__(self, other: Work) -> Work:
        return Work(
            self.num_rows + other.num_rows,
            self.num_prompt_tokens + other.num_prompt_tokens,
            self.num_output_tokens + other.num_output_tokens,
            min(self.started, other.started),
            max(self.ended, other.ended),
        )


def added(a: Mapping[str, Work], b: Mapping[str, Work]) -> dict[str, Work]:
    """The work of each worker in either."""
    total = dict(a)
    for worker, work in b.items():
        total[worker] = total[worker] + work if worker in total else work
    return total


def render_work(work: Mapping[str, Work]) -> str:
    """As JSON text."""
    return json.dumps({worker: dataclasses.astuple(done) for worker, done in work.items()})


def parse_work(text: str | None) -> dict[str, Work]:
    """What `render_work` was given; nothing where the text says something else."""
    try:
        found: Any = json.loads(text or "{}")
        return {
            str(worker): Work(int(rows), int(prompt), int(output), float(started), float(ended))
            for worker, (rows, prompt, output, started, ended) in found.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
