"""`rel-batch data ...`, `baselines` and `score --audited` as a user starts them."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest
from typer.testing import CliRunner, Result

from rel_batch.cli.commands import app
from rel_batch.errors import ConfigError, DataError, RelBatchError
from rel_batch.instances import read_instances
from rel_batch.report.baselines import read_baselines

CONFIG = (
    "run: r\noutput_dir: {folder}\nmodel: {{path: none}}\nengine: {{kind: fake}}\n"
    "instances: {{tasks: [REL-A1, REL-C1], limit: 2}}\n"
)


def run(*arguments: object) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, RelBatchError):
        raise done.exception
    return done


def generate(output: Path, *more: object) -> Result:
    return run("data", "generate", "--task", "REL-A3", "--per-level", 2, "-o", output, *more)


def test_generate_writes_what_was_asked_for_and_the_same_bytes_again(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    done = generate(one, "--rc", "3..5,7", "--seed", 7)
    assert (done.exit_code, done.stdout) == (0, f"8 records in {one}\n")
    assert [found.rc for found in read_instances(one)] == [3, 3, 4, 4, 5, 5, 7, 7]
    generate(two, "--rc", "3..5,7", "--seed", 7)
    assert one.read_bytes() == two.read_bytes()


def test_generate_replaces_no_file_unless_told_to(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        generate(file)
    assert file.read_text() == "mine"
    assert generate(file, "--force").exit_code == 0
    assert len(read_instances(file)) == 2


@pytest.mark.parametrize(
    ("task", "more", "why"),
    [
        ("REL-A9", [], "unknown task"),
        ("REL-A3", ["--rc", "15..3"], "cannot read '15..3'"),
        ("REL-A3", ["--rc", "three"], "cannot read 'three'"),
        ("REL-A3", ["--rc", "1..999999"], "cannot read"),
        ("REL-A3", ["--rc", "3,3..4"], "twice"),
        ("REL-A3", ["--rc", "2"], "2 x 2 cannot be made"),
        ("REL-A3", ["--hold", "colour"], "unknown value of hold"),
        ("REL-A1", ["--rc", "3"], "RC is always 2"),
        ("REL-B1", ["--rc", "9", "--size", "12"], "do not fit a tree of 12"),
        ("REL-C3", ["--rc", "100000"], "REL-C3"),
    ],
)
def test_generate_refuses_what_cannot_be_made_and_leaves_no_file(
    tmp_path: Path, task: str, more: list[str], why: str
) -> None:
    file = tmp_path / "a.jsonl"
    with pytest.raises(ConfigError, match=why):
        run("data", "generate", "--task", task, "--per-level", 1, "-o", file, *more)
    assert list(tmp_path.iterdir()) == []


def test_generate_wants_json_lines(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"suffix \.jsonl|JSON Lines"):
        generate(tmp_path / "a.parquet")


def test_show_prints_the_first_of_a_file_or_what_has_an_id(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    generate(file)
    first, second = read_instances(file)
    shown = run("data", "show", file).stdout
    assert first.question in shown
    assert second.question not in shown
    assert "reference reply" in shown
    for name in (second.id, second.key):
        assert second.question in run("data", "show", name, "--in", file).stdout


def test_show_names_the_nearest_id() -> None:
    known = read_instances("bundled")[0].id
    with pytest.raises(DataError) as caught:
        run("data", "show", known[:-1])
    assert caught.value.hint is not None
    assert "did you mean" in caught.value.hint


def test_stats_counts_by_task_and_subset_with_rc_and_lengths(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    generate(file, "--rc", "3,5")
    lines = run("data", "stats", file, "bundled").stdout.splitlines()
    row = next(line.split() for line in lines if line.startswith("REL-A3  3x3"))
    assert row[:5] == ["REL-A3", "3x3", "8", "3", "8"]
    assert any("lengths in characters" in line for line in lines)


def test_stats_counts_tokens_of_a_given_tokenizer(tiny_llama: Path) -> None:
    shown = run("data", "stats", "bundled", "--tokenizer", tiny_llama).stdout
    assert "lengths in tokens" in shown


def test_audit_prints_a_table_and_writes_parquet(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    shown = run("data", "audit", "bundled", "-o", file, "--processes", 1).stdout
    assert "62 records in 13 files" in shown
    assert polars.read_parquet(file).height == 62


@pytest.mark.parametrize("output", ["a.csv", "nowhere/a.parquet"])
def test_audit_refuses_an_output_before_any_work(tmp_path: Path, output: str) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        run("data", "audit", "nowhere.jsonl", "-o", tmp_path / output)


def test_baselines_are_printed_and_kept_with_the_run(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(CONFIG.format(folder=tmp_path))
    shown = run("baselines", config).stdout
    assert "nearest to the left neighbour *" in shown
    assert "there is no run" in shown
    assert run("run", config).exit_code == 0
    assert "kept in" in run("baselines", config).stdout
    rows = read_baselines(tmp_path / "r")
    assert {(row.task, row.subset, row.n) for row in rows} == {
        ("REL-A1", "3x3", 2),
        ("REL-A1", "5x5", 2),
        ("REL-C1", "all", 2),
    }
    # The run itself is as it was.
    assert run("run", config).exit_code == 0


def test_a_run_can_be_scored_by_audited_gold_afterwards(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(CONFIG.format(folder=tmp_path))
    assert "audited" not in run("run", config).stdout
    assert "aud" in run("score", tmp_path / "r", "--audited").stdout


def test_a_revision_without_the_hub_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(CONFIG.format(folder=tmp_path))
    with pytest.raises(ConfigError, match="revision is set, but source is not 'hub'"):
        run("baselines", config, "--set", "instances.revision=v1")
