"""One file with everything: each completion beside its score."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from example_runs import completion, new_run

from rel_batch.errors import ConfigError, StoreError
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder, export_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """One row that is scored twice over, one that is wrong, one that is not scored yet."""
    run = new_run(tmp_path / "run")
    run.publish_part(0, [completion(0), completion(1, reply="3\u2028é")])
    run.publish_part(0, [completion(0, reply="7")])
    score_run(run)
    run.publish_part(0, [completion(2, option_logprobs={"Yes": -0.5}, token_logprobs=(-0.25,))])
    return run


def test_rows_have_the_completion_the_instances_words_and_the_score(
    run: RunFolder, tmp_path: Path
) -> None:
    path = tmp_path / "out.parquet"
    assert export_run(run, path) == 3
    first, second, third = pq.read_table(path).to_pylist()
    assert first["reply"] == "2"
    assert first["output_token_ids"] == [18, 1]
    assert (first["id"], first["subset"], first["rc"]) == ("algebra_REL-A1_00000", "3x3", 2)
    assert (first["verdict"], first["prediction"]) == ("correct", "2")
    assert (second["reply"], second["correct"]) == ("3\u2028é", False)
    assert (third["option_logprobs"], third["token_logprobs"]) == ('{"Yes": -0.5}', [-0.25])
    assert [third[name] for name in ("verdict", "correct", "parsed", "upstream_correct")] == (
        [None] * 4
    )


def test_the_audited_verdict_is_exported_where_it_was_asked_for(
    run: RunFolder, tmp_path: Path
) -> None:
    path = tmp_path / "out.parquet"
    export_run(run, path)
    assert [row["audited_correct"] for row in pq.read_table(path).to_pylist()] == [None] * 3
    score_run(run, audited=True)
    export_run(run, path)
    rows = pq.read_table(path).to_pylist()
    assert [(row["correct"], row["audited_correct"]) for row in rows] == [
        (True, True),
        (False, False),
        (True, True),
    ]


def test_both_formats_hold_the_same(run: RunFolder, tmp_path: Path) -> None:
    assert export_run(run, tmp_path / "out.parquet") == export_run(run, tmp_path / "out.jsonl") == 3
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == (
        pq.read_table(tmp_path / "out.parquet").to_pylist()
    )


def test_an_export_replaces_the_last_one_whole(run: RunFolder, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    export_run(run, path)
    assert len(path.read_text().splitlines()) == 3
    assert sorted(os.listdir(tmp_path)) == ["out.jsonl", "run"]


@pytest.mark.parametrize("name", ["out.csv", "out", "out.PARQUET"])
def test_an_unknown_suffix_is_refused_before_anything_is_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its suffix says no known format") as raised:
        export_run(RunFolder(tmp_path / "absent", {}), tmp_path / name)
    assert raised.value.hint == "Give it one of the suffixes .parquet or .jsonl."


def test_a_folder_that_is_not_there_is_an_error(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not there"):
        export_run(run, tmp_path / "absent" / "out.parquet")
