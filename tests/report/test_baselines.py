"""Shortcuts without a model: scored on the same instances by the same rules, kept with the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import new_run

from rel_batch import read_instances
from rel_batch.errors import StoreError
from rel_batch.instances.shortcuts import SHORTCUTS
from rel_batch.report.baselines import (
    BaselineRow,
    measure_baselines,
    publish_baselines,
    read_baselines,
)

BUNDLED = read_instances("bundled", tasks=["REL-A1", "REL-C1", "REL-C3"])


def test_every_shortcut_of_a_task_is_a_row_for_each_subset_with_its_n() -> None:
    rows = measure_baselines(BUNDLED)
    for task in ("REL-A1", "REL-C1", "REL-C3"):
        subsets = {one.subset for one in BUNDLED if one.task == task}
        for subset in subsets:
            here = [row for row in rows if (row.task, row.subset) == (task, subset)]
            assert [row.baseline for row in here] == [one.name for one in SHORTCUTS[task]]
            n = sum((one.task, one.subset) == (task, subset) for one in BUNDLED)
            assert {row.n for row in here} == {n}
            assert all(0 <= row.correct <= n for row in here)


def test_the_empty_reply_and_the_echo_are_never_right_and_the_rule_is_always() -> None:
    rows = {(row.task, row.subset, row.baseline): row for row in measure_baselines(BUNDLED)}
    assert rows["REL-C3", "all", "empty reply"].correct == 0
    assert rows["REL-C3", "all", "echo of the given molecules"].correct == 0
    left = rows["REL-A1", "3x3", "nearest to the left neighbour"]
    assert (left.correct, left.bears_on_rule) == (left.n, True)


def test_the_same_seed_gives_the_same_rows() -> None:
    assert measure_baselines(BUNDLED, seed=4) == measure_baselines(BUNDLED, seed=4)
    # And a task's rows do not depend on what else is measured.
    alone = [one for one in BUNDLED if one.task == "REL-C1"]
    assert set(measure_baselines(alone)) <= set(measure_baselines(BUNDLED))


def test_baselines_are_kept_in_the_run_folder_and_replaced(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    assert read_baselines(run.path) == ()
    row = BaselineRow("REL-A1", "3x3", "random", bears_on_rule=False, correct=1, n=8)
    assert publish_baselines(run.path, [row, row]) == run.path / "report" / "baselines.parquet"
    publish_baselines(run.path, [row])
    assert read_baselines(run.path) == (row,)


def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    path = publish_baselines(run.path, [])
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(StoreError, match=r"baselines\.parquet"):
        read_baselines(run.path)


def test_the_released_files_give_the_shortcuts_that_were_counted(shared: Path) -> None:
    found = read_instances(shared / "data/rel/chemistry", tasks=["REL-C1", "REL-C2"])
    rows = {row.baseline: row for row in measure_baselines(found)}
    atoms, anisole = rows["same number of heavy atoms"], rows["commonest motif (anisole)"]
    assert round(100 * atoms.correct / atoms.n, 1) == 85.3
    assert round(100 * anisole.correct / anisole.n, 1) == 17.7
