"""What a person who watches a run is told, whoever shows it to them."""

from __future__ import annotations

from typing import Protocol

from rel_batch.records import Completion
from rel_batch.scoring import PartTally


class Progress(Protocol):
    """What a person watching the run is told."""

    def say(self, message: str) -> None:
        """One line about what happens now."""
        ...

    def begin(self, total: int, finished: int) -> None:
        """Generation starts with `finished` of `total` rows already there."""
        ...

    def completed(self, completion: Completion) -> None: ...

    def scored(self, tally: PartTally) -> None: ...

    def end(self) -> None: ...
