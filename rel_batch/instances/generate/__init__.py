"""Fresh REL instances of all nine tasks, in the released record format.

    >>> records = generate("REL-A3", rc=[3, 5], per_level=2, seed=7)
    >>> [record["metadata"]["certificate"]["n"] for record in records]
    [3, 3, 5, 5]

A law: the same arguments give the same bytes, and the record with number i does not depend on
how many are asked for. Each record carries in `metadata["certificate"]` what proves its gold.

Surprising: arguments that cannot be met raise ConfigError from the call itself, before the
first record is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from random import Random
from typing import Any, Protocol, cast

from rel_batch.errors import ConfigError, unknown_name
from rel_batch.instances.generate.draft import Draft, Setting

# Imported on use, since those of chemistry load rdkit.
_MODULES = {
    "REL-A1": "algebra",
    "REL-A2": "algebra",
    "REL-A3": "algebra",
    "REL-A4": "algebra",
    "REL-B1": "homoplasy",
    "REL-C1": "isomers",
    "REL-C2": "common_motif",
    "REL-C3": "isomers",
    "REL-C4": "motif_counts",
}
_DOMAINS = {"A": "algebra", "B": "biology", "C": "chemistry"}
HOLDS = ("entities", "length")
# Draws that are thrown away before one is kept: far above what any setting needs.
_MAX_DRAWS = 2_000


class _Generator(Protocol):
    def settings(
        self, task: str, rc: Iterable[int] | None, size: int | None, hold: str | None
    ) -> list[Setting]: ...

    def draw(self, task: str, setting: Setting, number: int, rng: Random) -> Draft | None: ...


def generate(
    task: str,
    *,
    rc: Iterable[int] | None = None,
    per_level: int,
    seed: int,
    hold: str | None = None,
    size: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Records of one task, `per_level` for each RC, level by level.

    `size` is the number of entities that a question shows: n of the n x n matrix (A), taxa (B1),
    molecules (C1, C2, C4) or given molecules (C3). `hold` is "entities" or "length": what stays
    fixed while the RC varies. Raises ConfigError for what cannot be made.
    """
    if task not in _MODULES:
        raise ConfigError(unknown_name("task", task, _MODULES))
    if hold is not None and hold not in HOLDS:
        raise ConfigError(unknown_name("value of hold", hold, HOLDS))
    if per_level < 1:
        raise ConfigError(f"per_level is {per_level}; it must be at least 1")
    module = cast(_Generator, import_module(f"{__name__}.{_MODULES[task]}"))
    levels = module.settings(task, None if rc is None else list(rc), size, hold)
    return _records(task, module, levels, per_level, seed)


def _records(
    task: str, module: _Generator, levels: list[Setting], per_level: int, seed: int
) -> Iterator[dict[str, Any]]:
    for setting in levels:
        questions: set[int] = set()
        for number in range(per_level):
            draft = _draw_new(task, module, setting, number, seed, questions)
            domain = _DOMAINS[task[4]]
            level = f"rc{setting.rc}" + (f"_n{setting.size}" if setting.size else "")
            yield {
                "id": f"{domain}_{task}_seed{seed}_{level}_{number:05d}",
                "domain": domain,
                "task": task,
                "question": draft.question,
                "answer": draft.answer,
                "metadata": draft.metadata,
            }


def _draw_new(
    task: str, module: _Generator, setting: Setting, number: int, seed: int, questions: set[int]
) -> Draft:
    rng = Random(f"{seed}/{task}/{setting.rc}/{setting.size}/{number}")
    for _ in range(_MAX_DRAWS):
        draft = module.draw(task, setting, number, rng)
        if draft is not None and hash(draft.question) not in questions:
            questions.add(hash(draft.question))
            return draft
    raise ConfigError(
        f"{task}: no new instance of RC {setting.rc} with {setting.size} entities was found in "
        f"{_MAX_DRAWS} draws; {number} were made",
        hint="ask for fewer per level, or for another size",
    )


def render_record(record: dict[str, Any]) -> str:
    """A record as one line of JSONL, as released: ASCII, no line break."""
    return json.dumps(record)
