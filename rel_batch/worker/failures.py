"""When a run has gone wrong: too many of its rows are failures of the engine or of constraints.

limit = FailureLimit.parse("5%")      # or a count: "20"
limit.add(completion)                 # raises EngineError when it is exceeded
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Self

from rel_batch.errors import ConfigError, EngineError
from rel_batch.records import Status

FAILURES: tuple[Status, ...] = ("engine_error", "constraint_rejected", "constraint_violated")
# A share of fewer rows than this says nothing.
_LEAST_ROWS = 50


class FailureLimit:
    """Counts rows, and stops at too many failures among them."""

    def __init__(self, *, count: int | None = None, share: float | None = None) -> None:
        """At most `count` failures, or at most a `share` of the rows; no limit by default."""
        self._count = count
        self._share = share
        self._rows = 0
        self._failures: Counter[Status] = Counter()
        self._example: str | None = None

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """ "20" is a count, "5%" a share of the rows, None no limit. Raises ConfigError."""
        if text is None:
            return cls()
        if re.fullmatch(r"\d{1,9}", text):
            return cls(count=int(text))
        if (found := re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)%", text)) and float(found[1]) <= 100:
            return cls(share=float(found[1]) / 100)
        raise ConfigError(
            f"--max-failures {text!r}: expected a number of rows or a share of them",
            hint="for example --max-failures 20 or --max-failures 5%",
        )

    def add(self, statuses: Iterable[tuple[Status, str | None]]) -> None:
        """Count rows by (status, error). Raises EngineError where there are too many failures."""
        for status, error in statuses:
            self._rows += 1
            if status in FAILURES:
                self._failures[status] += 1
                self._example = self._example or error
        total = self._failures.total()
        too_many = self._count is not None and total > self._count
        if self._share is not None and self._rows >= _LEAST_ROWS:
            too_many = too_many or total > self._share * self._rows
        if too_many:
            by_status = ", ".join(f"{status} {n}" for status, n in sorted(self._failures.items()))
            raise EngineError(
                f"the run goes wrong: {total} of {self._rows} new rows failed ({by_status}); "
                f"the first: {self._example}",
                hint="all rows are kept. Mend the cause, or raise --max-failures; the same command "
                "goes on from there",
            )
