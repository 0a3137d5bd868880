"""A whole run with the fake engine: laws 2 and 6 of the design, resume, and bad input.

The commands run as a user runs them, in processes of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rel_batch.instances import read_instances
from rel_batch.records import SCORING_VERSION
from rel_batch.store import RunFolder
from rel_batch.tasks import TASKS, task_for

CONFIG = "run: test\nmodel: {path: none}\nengine: {kind: fake}\n"


def rel_batch(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rel_batch", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def environment() -> dict[str, str]:
    repository = str(Path(__file__).parents[1])
    return {**os.environ, "PYTHONPATH": repository, "COLUMNS": "200", "NO_COLOR": "1"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "run.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    return file


def summary(run: Path) -> Any:
    done = rel_batch("report", run, "--json", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows(run: Path) -> list[tuple[Any, ...]]:
    """Every completion, without what differs from run to run."""
    return sorted(
        (c.request_key, c.status, c.reply, c.finish_reason, c.constraint_held, c.output_token_ids)
        for c in RunFolder.open(run).iter_completions()
    )


def script(folder: Path, *, delay_s: float = 0.0) -> Path:
    """Reference replies of the bundled instances, each after a delay."""
    file = folder / "replies.jsonl"
    lines = [
        {
            "instance": instance.key,
            "reply": task_for(instance.task).reference_reply(instance),
            "delay_s": delay_s,
        }
        for instance in read_instances("bundled")
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def test_the_oracle_scores_one_and_the_mute_zero_on_every_task(
    config: Path, tmp_path: Path
) -> None:
    for replies, expected in (("oracle", "correct"), ("mute", "unparsed")):
        overrides = [
            f"run={replies}",
            f"engine.fake_replies={replies}",
            "arms=[{name: f}, {name: n, constraint: none}]",
        ]
        flags = [part for override in overrides for part in ("--set", override)]
        done = rel_batch("run", config, *flags, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        folder = RunFolder.open(tmp_path / "outputs" / replies)
        scores = list(folder.iter_scores(SCORING_VERSION))
        assert {score.task for score in scores} == set(TASKS)
        assert {score.verdict for score in scores} == {expected}
        assert len(scores) == 2 * len(read_instances("bundled"))


def test_the_same_command_again_does_nothing_and_prints_the_same_table(
    config: Path, tmp_path: Path
) -> None:
    first = rel_batch("run", config, cwd=tmp_path)
    parts = sorted((tmp_path / "outputs" / "test" / "completions").iterdir())
    second = rel_batch("run", config, cwd=tmp_path)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout
    assert sorted((tmp_path / "outputs" / "test" / "completions").iterdir()) == parts
    assert "engine" not in second.stderr


def test_a_killed_run_resumes_to_the_same_rows(config: Path, tmp_path: Path) -> None:
    replies = script(tmp_path, delay_s=0.02)
    flags = ["--set", "engine.fake_replies=scripted", "--set", f"engine.fake_script={replies}"]
    undisturbed = rel_batch("run", config, *flags, "-o", "undisturbed", cwd=tmp_path)
    assert undisturbed.returncode == 0, undisturbed.stderr
    flags += ["--set", "store.flush_rows=5"]
    run = tmp_path / "outputs" / "test"
    kills = 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-m", "rel_batch", "run", str(config), *flags],
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        before = num_parts(run)
        deadline = time.monotonic() + 240
        while process.poll() is None and num_parts(run) == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait(timeout=120)
    assert kills >= 3, "the run was too fast to be killed"
    done = rel_batch("run", config, *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert rows(run) == rows(tmp_path / "undisturbed" / "test")
    assert undisturbed.stdout == done.stdout


def num_parts(run: Path) -> int:
    folder = run / "completions"
    return len(list(folder.glob("*.parquet"))) if folder.exists() else 0


def test_an_interrupt_keeps_finished_rows_and_leaves_no_process(
    config: Path, tmp_path: Path
) -> None:
    replies = script(tmp_path, delay_s=0.2)
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rel_batch",
            "run",
            str(config),
            "--set",
            "engine.fake_replies=scripted",
            "--set",
            f"engine.fake_script={replies}",
            "--set",
            "store.flush_s=1000",
        ],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        while "engine ready" not in (line := process.stderr.readline()):
            assert line, "the run ended before its engine was ready"
        time.sleep(1.0)
        os.killpg(process.pid, signal.SIGINT)
        told = process.stderr.read()
        assert process.wait(timeout=120) == 7
        assert "stopped by SIGINT" in told
        assert "run the same command" in told
    assert len(rows(tmp_path / "outputs" / "test")) >= 1
    assert group_is_gone(process.pid, within_s=60)


def group_is_gone(group: int, *, within_s: float) -> bool:
    """Whether no process of the group is left; Python's own helpers end just after their parent."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_script_shows_what_truncated_and_violated_replies_look_like(
    config: Path, tmp_path: Path
) -> None:
    replies = tmp_path / "replies.jsonl"
    instances = [i for i in read_instances("bundled") if i.task == "REL-A1"][:4]
    said = [
        {"reply": "3", "finish_reason": "length"},
        {"reply": "maybe"},
        {"reply": "x", "finish_reason": "length"},
        {"reply": "0", "finish_reason": "error"},
    ]
    lines = [{"instance": i.key, **s} for i, s in zip(instances, said, strict=True)]
    replies.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    source = tmp_path / "REL-A1_few.jsonl"
    source.write_text(_released(instances), encoding="utf-8")
    script_of = {c.id: s for c, s in zip(instances, said, strict=True)}
    assert len(script_of) == 4
    replies.write_text(
        "\n".join(json.dumps({"instance": k, **v}) for k, v in script_of.items()), encoding="utf-8"
    )
    done = rel_batch(
        "run",
        config,
        "--set",
        f"instances.source={source}",
        "--set",
        "engine.fake_replies=scripted",
        "--set",
        f"engine.fake_script={replies}",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    statuses = [c.status for c in RunFolder.open(tmp_path / "outputs" / "test").iter_completions()]
    assert sorted(statuses) == [
        "constraint_violated",
        "constraint_violated",
        "engine_error",
        "truncated",
    ]


def _released(instances: list[Any]) -> str:
    return "".join(
        json.dumps(
            {
                "id": i.id,
                "domain": "algebra",
                "task": i.task,
                "question": i.question,
                "answer": dict(i.answer),
                "metadata": dict(i.metadata),
            }
        )
        + "\n"
        for i in instances
    )


def test_a_request_that_does_not_fit_is_a_row_and_is_never_cut(
    config: Path, tmp_path: Path
) -> None:
    done = rel_batch("run", config, "--set", "model.max_model_len=1200", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = RunFolder.open(tmp_path / "outputs" / "test")
    completions = list(run.iter_completions())
    too_long = [c for c in completions if c.status == "too_long"]
    assert too_long
    assert all(
        c.reply == "" and c.finish_reason is None and "1200" in str(c.error) for c in too_long
    )
    planned = {r.key: r for r in run.iter_requests()}
    for completion in completions:
        request = planned[completion.request_key]
        fits = request.num_prompt_tokens + request.max_tokens <= 1200
        assert fits == (completion.status == "ok")


def test_another_seed_on_the_same_folder_is_refused_with_the_difference(
    config: Path, tmp_path: Path
) -> None:
    assert rel_batch("run", config, cwd=tmp_path).returncode == 0
    done = rel_batch("run", config, "--set", "seed=5", cwd=tmp_path)
    assert done.returncode == 4
    assert "seed" in done.stderr
    assert "5" in done.stderr


def test_score_and_report_and_export_need_neither_vllm_nor_torch(
    config: Path, tmp_path: Path
) -> None:
    assert rel_batch("run", config, cwd=tmp_path).returncode == 0
    (tmp_path / "vllm.py").write_text("raise SystemExit('vllm was imported')")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    run = tmp_path / "outputs" / "test"
    for command in (
        ["score", run],
        ["report", run],
        ["report", run, "--json"],
        ["export", run, "-o", tmp_path / "all.parquet"],
        ["export", run, "-o", tmp_path / "all.jsonl"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "rel_batch", *map(str, command)],
            cwd=tmp_path,
            env={**environment(), "PYTHONPATH": f"{tmp_path}:{environment()['PYTHONPATH']}"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    exported = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert len(exported) == len(read_instances("bundled"))
    assert {row["verdict"] for row in exported} == {"correct"}


GOOD_LINE = json.dumps(
    {
        "id": "x",
        "domain": "chemistry",
        "task": "REL-C1",
        "question": "q",
        "answer": {},
        "metadata": {},
    }
)


@pytest.mark.parametrize(
    ("source", "exit_code", "told"),
    [
        ("not json\n", 3, ":1"),
        ('{"id": "x"}\n', 3, "task"),
        (GOOD_LINE.replace("REL-C1", "REL-C7") + "\n", 3, "did you mean"),
        (GOOD_LINE.replace('"q"', "7") + "\n", 3, "question"),
        ("[]\n", 3, ":1"),
        ("", 3, "empty"),
    ],
)
def test_a_bad_instance_file_is_one_clear_sentence(
    config: Path, tmp_path: Path, source: str, exit_code: int, told: str
) -> None:
    file = tmp_path / "REL-C1.jsonl"
    file.write_text(source, encoding="utf-8")
    done = rel_batch("run", config, "--set", f"instances.source={file}", cwd=tmp_path)
    assert done.returncode == exit_code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "outputs").exists(), "nothing is written before the input is good"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (["run", "absent.yaml"], 2, "cannot read the config"),
        (["run", "run.yaml", "--set", "instances.source=nowhere.jsonl"], 3, "nowhere.jsonl"),
        (["run", "run.yaml", "--set", "instances.source=empty_folder"], 3, "empty_folder"),
        (["run", "run.yaml", "--set", "engine.kind=vllm"], 5, "no checkpoint at none"),
        (
            ["run", "run.yaml", "--set", "engine.kind=vllm", "--set", "model.path=empty_folder"],
            5,
            "config.json",
        ),
        (["run", "run.yaml", "--set", "output_dir=run.yaml"], 4, "run.yaml"),
        (["report", "nowhere"], 4, "nowhere"),
        (["score", "empty_folder"], 4, "empty_folder"),
        (["export", "nowhere", "-o", "x.csv"], 4, "nowhere"),
        (["tasks", "REL-A8"], 2, "did you mean"),
    ],
)
@pytest.mark.usefixtures("config")
def test_a_bad_argument_is_one_clear_sentence_with_its_exit_code(
    tmp_path: Path, arguments: list[str], exit_code: int, told: str
) -> None:
    (tmp_path / "empty_folder").mkdir()
    done = rel_batch(*arguments, cwd=tmp_path)
    assert done.returncode == exit_code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_skip_bad_counts_and_lists_the_bad_lines(config: Path, tmp_path: Path) -> None:
    good = [i for i in read_instances("bundled") if i.task == "REL-A1"][:2]
    file = tmp_path / "REL-A1_3x3.jsonl"
    file.write_text("not json\n" + _released(good), encoding="utf-8")
    flags = ["--set", f"instances.source={file}"]
    assert rel_batch("run", config, *flags, cwd=tmp_path).returncode == 3
    done = rel_batch("run", config, *flags, "--skip-bad", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{file.name}:1" in done.stderr
    manifest = json.loads((tmp_path / "outputs/test/manifest.json").read_text())
    assert len(manifest["skipped"]) == 1


def test_check_prints_counts_and_generates_nothing(config: Path, tmp_path: Path) -> None:
    done = rel_batch("check", config, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for task in TASKS:
        assert task in done.stdout
    assert not (tmp_path / "outputs").exists()


def test_tasks_lists_all_and_shows_one(tmp_path: Path) -> None:
    listed = rel_batch("tasks", cwd=tmp_path)
    assert all(task in listed.stdout for task in TASKS)
    shown = rel_batch("tasks", "rel-c3", cwd=tmp_path)
    shown = shown if shown.returncode == 0 else rel_batch("tasks", "REL-C3", cwd=tmp_path)
    assert "<smiles>" in shown.stdout
    assert "reference reply" in shown.stdout
