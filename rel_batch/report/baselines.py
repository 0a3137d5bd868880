"""What the shortcuts that need no model score on a run's own instances.

    publish_baselines(run.path, measure_baselines(run.read_instances()))
    for row in read_baselines(run.path): print(row.task, row.baseline, wilson(row.correct, row.n))

A model's 60% is read against the shortcut's 81%. The rows are kept in `report/baselines.parquet` of
the run folder (columns: `BaselineRow`), one for each task, subset and shortcut, and are scored by
the strict rules like any reply. `rel-batch baselines CONFIG` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random

from rel_batch.errors import StoreError
from rel_batch.instances.shortcuts import SHORTCUTS, Shortcut
from rel_batch.judge import score_reply
from rel_batch.records import Instance
from rel_batch.store.disk import make_folder
from rel_batch.store.parquet import read_rows, write_rows
from rel_batch.store.schemas import BASELINES, BaselineRow

__all__ = ["BaselineRow", "measure_baselines", "publish_baselines", "read_baselines"]


def measure_baselines(
    instances: Iterable[Instance],
    *,
    seed: int = 0,
    on_progress: Callable[[BaselineRow], None] | None = None,
) -> list[BaselineRow]:
    """Score every shortcut of each task and subset. Ties are drawn at random from `seed`.

    The longest identical run of REL-B1 compares all pairs of sequences: some 15 ms of processor
    time for 49 sequences of 1,000 bases.
    """
    groups: dict[tuple[str, str], list[Instance]] = {}
    for instance in instances:
        groups.setdefault((instance.task, instance.subset), []).append(instance)
    rows: list[BaselineRow] = []
    for (task, subset), found in sorted(groups.items()):
        for shortcut in SHORTCUTS[task]:
            rng = Random(f"{seed}/{task}/{subset}/{shortcut.name}")
            correct = sum(_is_right(shortcut, instance, rng) for instance in found)
            row = BaselineRow(
                task, subset, shortcut.name, shortcut.bears_on_rule, correct, len(found)
            )
            rows.append(row)
            if on_progress is not None:
                on_progress(row)
    return rows


def _is_right(shortcut: Shortcut, instance: Instance, rng: Random) -> bool:
    record = {"question": instance.question, "metadata": instance.metadata}
    return score_reply(instance, shortcut.reply(record, rng)).correct


def publish_baselines(run: Path, rows: Sequence[BaselineRow]) -> Path:
    """Keep baselines in a run folder, replacing those that are there. Raises StoreError."""
    path = _path(run)
    make_folder(path.parent)
    write_rows(path, BASELINES, rows, replace=True)
    return path


def read_baselines(run: Path) -> tuple[BaselineRow, ...]:
    """The baselines of a run folder; () where none were measured. Raises StoreError."""
    path = _path(run)
    try:
        return tuple(read_rows(path, BASELINES)) if path.exists() else ()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def _path(run: Path) -> Path:
    return run / "report" / "baselines.parquet"
