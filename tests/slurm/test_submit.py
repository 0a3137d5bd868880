"""Submitting, with an sbatch that is faked: what is queued, what is noted, what is said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

from rel_batch import checkpoint
from rel_batch.config import RunConfig, read_config
from rel_batch.errors import EngineError, LaunchError, StoreError
from rel_batch.launch.prepare import Prepared
from rel_batch.launch.setup import load_setup
from rel_batch.launch.slurm import Slurm, UnsureError
from rel_batch.launch.slurm_submit import Submission, prepare_run, read_submissions, submit
from rel_batch.launch.slurm_watch import Cancelled, cancel, read_arrays
from rel_batch.slurm_settings import SlurmConfig

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    file = tmp_path / "night.yaml"
    file.write_text(
        f"run: night\noutput_dir: {tmp_path / 'out'}\nmodel: {{path: none}}\n"
        "engine: {kind: fake}\ninstances: {tasks: [REL-A1]}\nslurm: {tasks: 4, time: 1:00:00}\n"
    )
    return read_config(file)


def test_an_array_is_queued_and_a_job_that_reports_behind_it(
    fake: FakeSlurm, config: RunConfig
) -> None:
    found = prepare_run(config, allow_rejected=False)
    assert (found.num_requests, found.num_missing) == (8, 8)
    submission = submit(config, config.slurm, Slurm.find(), after=None)
    assert submission == Submission("4711", 4, "4712")
    array, report = fake.scripts
    assert "#SBATCH --array=0-3\n" in array
    assert f"run={config.folder}\n" in array
    assert "#SBATCH --dependency=afterany:4711\n" in report
    assert "#SBATCH --kill-on-invalid-dep=yes\n" in report


def test_what_was_queued_is_noted_in_the_run_folder(fake: FakeSlurm, config: RunConfig) -> None:
    prepare_run(config, allow_rejected=False)
    submission = submit(config, config.slurm, Slurm.find(), after=None)
    assert read_submissions(config.folder) == [submission]
    noted = config.folder / "slurm"
    assert (noted / "array-4711.sbatch").read_text() == fake.scripts[0]
    assert (noted / "report-4711.sbatch").read_text() == fake.scripts[1]
    # More workers for the same run.
    more = submit(config, SlurmConfig(tasks=2), Slurm.find(), after=None)
    assert read_submissions(config.folder) == [submission, more]


@pytest.mark.parametrize(
    ("after", "dependency"),
    [("17", "afterany:17"), ("afterok:17", "afterok:17")],
)
@pytest.mark.usefixtures("fake")
def test_an_array_can_wait_for_another_job(
    fake: FakeSlurm, config: RunConfig, after: str, dependency: str
) -> None:
    prepare_run(config, allow_rejected=False)
    submit(config, config.slurm, Slurm.find(), after=after)
    assert f"#SBATCH --dependency={dependency}\n" in fake.scripts[0]


def test_a_refused_array_leaves_nothing_queued(fake: FakeSlurm, config: RunConfig) -> None:
    prepare_run(config, allow_rejected=False)
    fake.refuse(1)
    with pytest.raises(LaunchError, match=r"Invalid account; nothing is queued") as error:
        submit(config, config.slurm, Slurm.find(), after=None)
    assert error.value.exit_code == 6
    assert fake.scripts == []
    assert read_submissions(config.folder) == []


def test_a_submission_that_fails_half_way_says_what_is_queued(
    fake: FakeSlurm, config: RunConfig
) -> None:
    prepare_run(config, allow_rejected=False)
    fake.refuse(2)
    with pytest.raises(LaunchError, match=r"array job 4711 \(4 tasks\) is queued") as error:
        submit(config, config.slurm, Slurm.find(), after=None)
    assert "Invalid account" in error.value.message
    report = config.folder / "slurm" / "report-4711.sbatch"
    assert f"sbatch {report}" in str(error.value.hint)
    assert f"rel-batch slurm cancel {config.folder}" in str(error.value.hint)
    # What the hint names is there, and finds the array.
    assert "--dependency=afterany:4711" in report.read_text()
    assert read_submissions(config.folder) == [Submission("4711", 4, None)]


def test_a_disk_that_fails_after_the_array_was_queued_is_told_with_the_array(
    fake: FakeSlurm, config: RunConfig
) -> None:
    prepare_run(config, allow_rejected=False)
    (config.folder / "slurm" / "report-4711.sbatch").mkdir(parents=True)
    with pytest.raises(LaunchError, match=r"array job 4711 .* is queued") as error:
        submit(config, config.slurm, Slurm.find(), after=None)
    assert "scancel 4711" in str(error.value.hint)
    assert len(fake.scripts) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"array_job": 1, "jobs": 2}'])
def test_a_note_that_is_no_submission_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "job-12.json").write_text(text)
    (tmp_path / "slurm" / "job-12.json.swp").touch()
    with pytest.raises(StoreError, match=r"job-12\.json"):
        read_submissions(tmp_path)


@pytest.mark.parametrize(
    ("text", "code", "complaint"),
    [
        ("", 0, "gave no job id"),
        ("welcome\n", 0, "gave no job id"),
        ("", 1, "may be queued"),
    ],
)
def test_a_job_that_may_be_queued_is_not_called_refused(
    fake: FakeSlurm, config: RunConfig, text: str, code: int, complaint: str
) -> None:
    prepare_run(config, allow_rejected=False)
    said = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    fake.answer("sbatch", text, code=code, error=said if code else "")
    with pytest.raises(UnsureError, match=complaint) as error:
        submit(config, config.slurm, Slurm.find(), after=None)
    assert "squeue" in str(error.value.hint)


@pytest.mark.usefixtures("fake")
def test_a_constraint_that_does_not_compile_queues_nothing(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prepared, "rejected_constraints", {"d": "it is too large"})
    with pytest.raises(EngineError, match=r"nothing was queued; the first: it is too large"):
        prepare_run(config, allow_rejected=False)
    assert not config.folder.exists()
    assert prepare_run(config, allow_rejected=True).num_missing == 8


@pytest.mark.usefixtures("fake")
def test_settings_of_a_cluster_are_no_part_of_a_run(config: RunConfig) -> None:
    prepare_run(config, allow_rejected=False)
    assert "slurm" not in json.loads((config.folder / "manifest.json").read_text())["config"]
    other = config.model_copy(update={"slurm": SlurmConfig(tasks=9, partition="other")})
    assert prepare_run(other, allow_rejected=False).run.path == config.folder


def test_a_worker_takes_the_snapshot_that_was_fetched_and_asks_no_hub(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hub.yaml"
    file.write_text(
        f"run: hub\noutput_dir: {tmp_path / 'out'}\nmodel: {{path: some/model, revision: main}}\n"
        "instances: {tasks: [REL-A1], limit: 1}\n"
    )
    snapshot = tmp_path / "snapshots" / ("0123456789" * 4)  # as the Hub's cache names it
    shutil.copytree(tiny_llama, snapshot)
    monkeypatch.setattr(checkpoint, "_download", lambda _: snapshot)
    monkeypatch.setattr(Prepared, "rejected_constraints", {})  # needs no engine here
    run = prepare_run(read_config(file), allow_rejected=False).run

    def refuse(_: object) -> Path:
        raise AssertionError("the Hub was asked")

    monkeypatch.setattr(checkpoint, "_download", refuse)
    setup = load_setup(run)
    assert setup.checkpoint is not None
    assert (setup.checkpoint.path, setup.checkpoint.commit) == (snapshot, snapshot.name)


# Watching and cancelling.

QUEUE = (
    "4711_0|RUNNING|None|n1|1:00|59:00\n4711_1|RUNNING|None|n2|1:00|59:00\n"
    "4711_2|PENDING|Priority||0:00|1:00:00\n4712|PENDING|Dependency||0:00|1:00:00\n"
)


@pytest.fixture
def submitted(fake: FakeSlurm, config: RunConfig) -> Path:
    prepare_run(config, allow_rejected=False)
    submit(config, config.slurm, Slurm.find(), after=None)
    fake.answer("squeue", QUEUE)
    return config.folder


def test_the_queue_and_the_accounts_are_seen_together(fake: FakeSlurm, submitted: Path) -> None:
    fake.answer("sacct", "4711_3|COMPLETED|n1|00:10:00\n4711_0|PENDING||00:00:00\n")
    [array] = read_arrays(submitted, Slurm.find())
    # The accounts may be late: what the queue says of task 0 counts.
    assert [(task.id, task.state) for task in array.tasks] == [
        ("4711_0", "RUNNING"),
        ("4711_1", "RUNNING"),
        ("4711_2", "PENDING"),
        ("4711_3", "COMPLETED"),
    ]
    assert [task.id for task in array.alive] == ["4711_0", "4711_1", "4711_2"]
    assert array.report is not None
    assert array.report.state == "PENDING"


@pytest.mark.parametrize("code", [0, 1])
def test_a_task_that_slurm_has_forgotten_is_unknown(
    fake: FakeSlurm, submitted: Path, code: int
) -> None:
    fake.answer("sacct", "", code=code, error="Slurm accounting storage is disabled")
    fake.answer("squeue", "", code=1, error="slurm_load_jobs error: Invalid job id specified")
    [array] = read_arrays(submitted, Slurm.find())
    assert array.count_states() == {"UNKNOWN": 4}
    assert array.report is None


def test_a_gentle_end_forbids_to_requeue_before_it_stops_anything(
    fake: FakeSlurm, submitted: Path
) -> None:
    assert cancel(submitted, Slurm.find(), now=False) == [
        Cancelled(Submission("4711", 4, "4712"), num_waiting=1, num_running=2)
    ]
    assert [call for call in fake.calls if call.startswith(("scontrol", "scancel"))] == [
        "scontrol update jobid=4711 requeue=0",
        "scancel --quiet --state=PENDING 4711",
        "scancel --quiet --batch --signal=USR2 4711",
    ]


def test_an_end_at_once_takes_the_report_job_along(fake: FakeSlurm, submitted: Path) -> None:
    cancel(submitted, Slurm.find(), now=True)
    assert [call for call in fake.calls if call.startswith("scancel")] == [
        "scancel --quiet 4711",
        "scancel --quiet 4712",
    ]


@pytest.mark.parametrize("said", ["Job has already finished", "Invalid job id specified"])
def test_an_array_that_ends_meanwhile_is_no_error(
    fake: FakeSlurm, submitted: Path, said: str
) -> None:
    fake.answer("scontrol", "", code=1, error=said)
    assert len(cancel(submitted, Slurm.find(), now=False)) == 1
    fake.answer("scontrol", "", code=1, error="Unable to contact slurm controller")
    with pytest.raises(LaunchError, match="Unable to contact"):
        cancel(submitted, Slurm.find(), now=False)


def test_an_array_that_has_ended_is_left_alone(fake: FakeSlurm, submitted: Path) -> None:
    fake.answer("squeue", "4711_0|COMPLETED|None|n1|1:00|0:00\n")
    assert cancel(submitted, Slurm.find(), now=False) == []


# The command.


def rel_batch(*arguments: object, cwd: Path, path: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PATH": path, "COLUMNS": "100"}
    environ["XDG_CONFIG_HOME"] = str(cwd / "home")
    return subprocess.run(
        [sys.executable, "-m", "rel_batch", *map(str, arguments)],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_slurm_the_command_says_so_and_offers_to_print(
    tmp_path: Path, config: RunConfig
) -> None:
    file = tmp_path / "night.yaml"
    done = rel_batch("slurm", "submit", file, cwd=tmp_path, path="/nowhere")
    assert done.returncode == 6, done.stderr
    assert "there is no sbatch" in done.stderr
    assert "--print" in done.stderr
    assert not config.folder.exists()
    shown = rel_batch("slurm", "submit", file, "--print", cwd=tmp_path, path="/nowhere")
    assert shown.returncode == 0, shown.stderr
    assert "#SBATCH --array=0-3\n" in shown.stdout
    assert "--dependency=afterany:ARRAY_JOB" in shown.stdout
    assert not config.folder.exists()


def test_the_command_reads_its_options_and_prints_what_to_do_next(
    tmp_path: Path, fake: FakeSlurm, config: RunConfig
) -> None:
    home = tmp_path / "home" / "rel-batch" / "slurm.yaml"
    home.parent.mkdir(parents=True)
    home.write_text("account: ours\ntasks: 99\n")
    done = rel_batch(
        *("slurm", "submit", tmp_path / "night.yaml", "--tasks", 2, "--throttle", 1),
        *("--partition", "gpu", "--qos", "low", "--time", "30", "--constraint", "a100"),
        *("--nodelist", "n[1-2]", "--gpus-per-task", 2, "--max-requeues", 7, "--after", 17),
        *("--sbatch", "mem=64G", "--sbatch", "exclusive"),
        cwd=tmp_path,
        path=os.environ["PATH"],
    )
    assert done.returncode == 0, done.stderr
    assert "array job 4711: 2 tasks\n" in done.stdout
    assert "report job 4712" in done.stdout
    assert f"rel-batch slurm status {config.folder}" in done.stdout
    lines = fake.scripts[0].splitlines()
    assert {
        *("#SBATCH --array=0-1%1", "#SBATCH --partition=gpu", "#SBATCH --qos=low"),
        *("#SBATCH --time=30", "#SBATCH --constraint=a100", "#SBATCH --nodelist=n[1-2]"),
        *("#SBATCH --gres=gpu:2", "#SBATCH --dependency=afterany:17", "#SBATCH --mem=64G"),
        *("#SBATCH --exclusive", "#SBATCH --account=ours", "#SBATCH --job-name=rel-night"),
    } <= set(lines)
    assert "--max-requeues 7" in lines[-1]
    # For scripts: the ids and nothing else.
    again = rel_batch(
        "slurm",
        "submit",
        tmp_path / "night.yaml",
        "--parsable",
        cwd=tmp_path,
        path=os.environ["PATH"],
    )
    assert again.stdout == "4713 4714\n"


def test_a_sweep_is_one_run_for_each_checkpoint_and_one_report_of_all(
    tmp_path: Path, fake: FakeSlurm, config: RunConfig
) -> None:
    checkpoints = tmp_path / "checkpoints.txt"
    checkpoints.write_text("Qwen/Qwen3-8B\n# not this one\n\nmodels/my model\n")
    command = fake.bin / "rel-batch"
    command.write_text(f'#!/bin/bash\nexec {sys.executable} -m rel_batch "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        [REPOSITORY / "slurm" / "sweep.sh", tmp_path / "night.yaml", checkpoints, "--tasks", "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "night-Qwen3-8B: 4711 4712\nnight-my-model: 4713 4714\n4715\n"
    runs = sorted(path.name for path in config.folder.parent.iterdir())
    assert runs == ["night-Qwen3-8B", "night-my-model"]
    said = [call for call in fake.calls if "--wrap" in call]
    assert len(said) == 1
    assert "--dependency=afterany:4712:4714" in said[0]
    assert "report 'outputs/night-Qwen3-8B' 'outputs/night-my-model' -o" in said[0]
