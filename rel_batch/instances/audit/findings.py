"""What an audit says: findings about one record, and the row that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Findings:
    """What is to be said of one record.

    Attributes:
        findings: names out of `MEANINGS`, in the order of the checks.
        undecided: what could not be decided.
        detail: the evidence, as JSON values.
    """

    findings: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands, and what it is called."""

    file: str
    line: int
    id: str
    task: str


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line of an audited file: a row of `audit.parquet`.

    `task` and `id` are "" where the line cannot be read. `rc` is 0 where it is unknown.
    """

    file: str
    line: int
    id: str
    task: str
    findings: tuple[str, ...]
    undecided: tuple[str, ...]
    detail: Mapping[str, Any]
