"""Any program can read a run by a plain glob, also while it goes on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from example_runs import completion, new_run

from rel_batch.records import SCORING_VERSION
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Two parts (one with no value at all in a nullable column), and one that is being written."""
    run = new_run(tmp_path / "run")
    run.publish_part(0, [completion(0, seed=5), completion(1, seed=6, error="odd")])
    run.publish_part(1, [completion(2, chunk=1, output_token_ids=(), constraint_held=None)])
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
    check(polars.read_parquet(run.path / "completions" / "*.parquet").to_dicts())
    scores = polars.read_parquet(run.path / "scores" / SCORING_VERSION / "*.parquet")
    assert scores["correct"].sum() == 3


def test_pandas_reads_a_run(run: RunFolder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pandas = pytest.importorskip("pandas")
        parts = sorted((run.path / "completions").glob("*.parquet"))
        frame = pandas.concat([pandas.read_parquet(part) for part in parts])
    check(frame.astype(object).where(frame.notna(), None).to_dict("records"))


def test_pyarrow_datasets_read_a_run(run: RunFolder) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    check(dataset.dataset(run.path / "completions", format="parquet").to_table().to_pylist())


def test_duckdb_reads_a_run(run: RunFolder) -> None:
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql(f"select * from '{run.path}/completions/*.parquet'")
    names = relation.columns
    check([dict(zip(names, row, strict=True)) for row in relation.fetchall()])


def test_hugging_face_datasets_read_a_run(run: RunFolder, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    files = str(run.path / "completions" / "*.parquet")
    loaded = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    check(list(loaded))
