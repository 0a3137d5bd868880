"""What a task's generator is asked for and gives: settings, drafts, and refusals they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rel_batch.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Setting:
    """The level to draw at: relational complexity, and the entities that a question shows.

    `size` is n of an n x n matrix (A), the number of taxa (B) or of molecules (C).
    """

    rc: int
    size: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A record without its id: the question, the gold, and the metadata that certifies it."""

    question: str
    answer: dict[str, Any]
    metadata: dict[str, Any]


def fixed_rc(task: str, rc: Iterable[int] | None, only: int) -> list[int]:
    """The RC levels of a task that has one. Raises ConfigError for any other."""
    levels = [only] if rc is None else list(rc)
    for level in levels:
        if level != only:
            raise ConfigError(
                f"{task}: its RC is always {only}, so RC {level} cannot be made",
                hint=f"ask for rc {only}, and vary the size instead",
            )
    return levels


def no_hold(task: str, hold: str | None, why: str) -> None:
    """Refuses to hold anything fixed. Raises ConfigError."""
    if hold is not None:
        raise ConfigError(f"{task}: cannot hold its {hold} fixed: {why}")
