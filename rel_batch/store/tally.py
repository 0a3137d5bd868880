"""What the rows of one file of completions amount to, for whoever watches a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rel_batch.store.parquet import read_columns, read_notes
from rel_batch.store.schemas import COMPLETIONS
from rel_batch.store.work import Work, parse_work

_COLUMNS = (
    "chunk",
    "request_key",
    "status",
    "task",
    "arm",
    "num_prompt_tokens",
    "num_output_tokens",
)


@dataclass(slots=True)
class Tokens:
    """Rows, and the tokens of their prompts and of what was generated."""

    num_rows: int = 0
    prompt: int = 0
    output: int = 0


@dataclass(slots=True)
class Tally:
    """Rows by status; their tokens by task and arm."""

    statuses: Counter[str] = field(default_factory=Counter[str])
    groups: dict[tuple[str, str], Tokens] = field(default_factory=dict[tuple[str, str], Tokens])

    @property
    def num_rows(self) -> int:
        return self.statuses.total()

    @property
    def num_output_tokens(self) -> int:
        return sum(tokens.output for tokens in self.groups.values())

    def read(self, path: Path, is_new: Callable[[int, str], bool]) -> dict[str, Work]:
        """Add those rows of a file of which `is_new(chunk, key)`, and give who has made it when.

        Raises StoreError, FileGoneError where the file is not there any more.
        """
        work = parse_work(read_notes(path, COMPLETIONS).get("work"))
        for columns in read_columns(path, COMPLETIONS, _COLUMNS):
            for chunk, key, status, task, arm, prompt, output in zip(*columns, strict=True):
                if is_new(chunk, key):
                    self.statuses[status] += 1
                    tokens = self.groups.get((task, arm))
                    if tokens is None:
                        tokens = self.groups[task, arm] = Tokens()
                    tokens.num_rows += 1
                    tokens.prompt += prompt
                    tokens.output += output
        return work
