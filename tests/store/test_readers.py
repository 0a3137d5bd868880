"""Any program can read a run by a plain glob: while it goes on, while it is merged, and after.

Between the moment in which merged files appear and the one in which the parts are removed, a glob
sees rows twice: drop the duplicates of `request_key`, as each of these does.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from example_runs import completion, new_run

from rel_batch.records import SCORING_VERSION
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder, compact


@pytest.fixture(params=["before", "during", "after"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    """Parts (one with no value at all in a nullable column), one of them being written.

    They are not merged, merged and not yet removed, or merged while another is published.
    """
    run = new_run(tmp_path / "run")
    run.publish_part(0, [completion(0, seed=5), completion(1, seed=6, error="odd")])
    late = [completion(2, chunk=1, output_token_ids=(), constraint_held=None)]
    if request.param == "before":
        run.publish_part(1, late)
    score_run(run)
    if request.param == "during":
        run.publish_part(1, late)
        score_run(run)
        copy = shutil.copytree(run.path, tmp_path / "copy")
        compact(run)
        shutil.copytree(copy, run.path, dirs_exist_ok=True)
    if request.param == "after":
        compact(run)
        run.publish_part(1, late)
        score_run(run)
    (run.path / "completions" / ".chunk-00001.part-01.parquet.ab12cd.tmp").write_bytes(b"PAR1half")
    return run


def check(rows: list[dict[str, Any]]) -> None:
    rows = sorted(rows, key=lambda row: row["request_key"])
    assert [row["request_key"] for row in rows] == ["r0-format", "r1-format", "r2-format"]
    assert [list(row["output_token_ids"]) for row in rows] == [[18, 1], [18, 1], []]
    assert [row["error"] for row in rows] == [None, "odd", None]


def test_polars_reads_a_run(run: RunFolder) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(run.path / "completions" / "*.parquet")
    check(frame.unique("request_key").to_dicts())
    scores = polars.read_parquet(run.path / "scores" / SCORING_VERSION / "*.parquet")
    assert scores.unique("request_key")["correct"].sum() == 3


def test_pandas_reads_a_run(run: RunFolder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pandas = pytest.importorskip("pandas")
        parts = sorted((run.path / "completions").glob("*.parquet"))
        frame = pandas.concat([pandas.read_parquet(part) for part in parts])
    frame = frame.drop_duplicates("request_key")
    check(frame.astype(object).where(frame.notna(), None).to_dict("records"))


def test_pyarrow_datasets_read_a_run(run: RunFolder) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    rows = dataset.dataset(run.path / "completions", format="parquet").to_table().to_pylist()
    check(list({row["request_key"]: row for row in rows}.values()))


def test_duckdb_reads_a_run(run: RunFolder) -> None:
    duckdb = pytest.importorskip("duckdb")
    files = f"'{run.path}/completions/*.parquet'"
    relation = duckdb.sql(f"select distinct on (request_key) * from {files}")
    names = relation.columns
    check([dict(zip(names, row, strict=True)) for row in relation.fetchall()])


def test_hugging_face_datasets_read_a_run(run: RunFolder, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    files = str(run.path / "completions" / "*.parquet")
    loaded = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    check(list({row["request_key"]: row for row in loaded}.values()))
