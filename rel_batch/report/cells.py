"""A task's rows under one arm, instance by instance: what every figure is computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rel_batch.report.evidence import Evidence, Row
from rel_batch.report.statistics import Estimate, Floats, estimate_share


@dataclass(frozen=True)
class Cell:
    """One task under one arm.

    Attributes:
        questions: positions in the evidence, one for each instance that has a row.
        correct, samples: correct rows and all rows of each instance, in the order of `questions`.
    """

    questions: Sequence[int]
    rows: Sequence[Row]
    correct: Floats
    samples: Floats
    by_question: Mapping[int, Sequence[Row]] = field(repr=False)

    @property
    def values(self) -> Floats:
        return self.correct / self.samples

    @property
    def is_single(self) -> bool:
        return bool(np.all(self.samples == 1))

    @classmethod
    def of(cls, by_question: Mapping[int, Sequence[Row]]) -> Cell:
        groups = by_question.values()
        return cls(
            questions=list(by_question),
            rows=[row for rows in groups for row in rows],
            correct=np.array([sum(row.correct for row in rows) for rows in groups], np.float64),
            samples=np.array([len(rows) for rows in groups], np.float64),
            by_question=by_question,
        )


# By task and arm, in their order.
Cells = Mapping[tuple[str, int], Cell]


def cells_of(evidence: Evidence) -> Cells:
    """The evidence as cells."""
    return {key: Cell.of(rows) for key, rows in sorted(evidence.by_cell().items())}


def mean_of(cell: Cell, name: str, *, single: bool = False) -> Estimate | None:
    """A figure's mean over instances, of those where it exists."""
    means: list[float] = []
    for rows in cell.by_question.values():
        found = [value for row in rows if (value := getattr(row, name)) is not None]
        if found:
            means.append(sum(found) / len(found))
    return estimate_share(np.array(means, np.float64), single=single) if means else None
