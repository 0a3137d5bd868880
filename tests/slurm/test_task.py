"""A task of an array: what it reads of its environment, and when it queues itself again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

from rel_batch.config import read_config
from rel_batch.errors import LaunchError
from rel_batch.launch.slurm import JobView
from rel_batch.launch.slurm_submit import prepare_run
from rel_batch.launch.slurm_task import Ended, Life, remove_scratch, why_not_again
from rel_batch.store import RunFolder

REPOSITORY = Path(__file__).parents[2]
RUNNING = JobView(state="RUNNING", may_requeue=True, preempted=False, end=None)
PREEMPTED = JobView(state="RUNNING", may_requeue=True, preempted=True, end=None)
STOPPED = Ended(stopped=True, num_missing=10, num_added=5)
FIRST = Life("7_3", restarts=0, devices="0")


@pytest.mark.parametrize(
    ("environ", "name", "why"),
    [
        ({"SLURM_JOB_ID": "7"}, "7", "a job that is no array"),
        (
            {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"},
            "7_2",
            "a task has a job id of its own",
        ),
        (
            {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"},
            "7_3",
            "the last task's own id is the array's: to requeue that would rerun all tasks",
        ),
        (
            {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"},
            "7_0",
            "task 0 is no missing task",
        ),
    ],
)
def test_a_task_is_requeued_by_its_own_name(environ: dict[str, str], name: str, why: str) -> None:
    assert Life.from_environment(environ).name == name, why


@pytest.mark.parametrize(
    ("count", "restarts"), [(None, 0), ("", 0), ("0", 0), ("1", 1), ("17", 17), ("x", 0)]
)
def test_the_restart_count_is_unset_in_the_first_life(count: str | None, restarts: int) -> None:
    environ = {"SLURM_JOB_ID": "7"} | ({} if count is None else {"SLURM_RESTART_COUNT": count})
    assert Life.from_environment(environ).restarts == restarts


@pytest.mark.parametrize("devices", [None, "", "0", "2,3", "GPU-5f3a"])
def test_the_visible_devices_are_taken_as_they_are(devices: str | None) -> None:
    mask = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    assert Life.from_environment({"SLURM_JOB_ID": "7"} | mask).devices == devices


def test_outside_of_slurm_there_is_no_task() -> None:
    with pytest.raises(LaunchError, match="not a SLURM job") as error:
        Life.from_environment({"SLURM_ARRAY_JOB_ID": "7"})
    assert error.value.exit_code == 6


@pytest.mark.parametrize(
    ("ended", "life", "view", "reason"),
    [
        (STOPPED, FIRST, RUNNING, None),
        (STOPPED, Life("7_3", 2, None), RUNNING, None),
        (Ended(True, 0, 5), FIRST, RUNNING, "every request has its row"),
        (Ended(False, 10, 5), FIRST, RUNNING, "no signal"),
        # Cancelled by a person, or preempted by SLURM, which requeues by itself.
        (STOPPED, FIRST, JobView("COMPLETING", True, False, None), "COMPLETING"),
        (STOPPED, FIRST, JobView("PENDING", True, False, None), "PENDING"),
        (STOPPED, FIRST, JobView("RUNNING", False, False, None), "switched off"),
        (STOPPED, Life("7_3", 3, None), RUNNING, "requeued 3 times"),
        (STOPPED, Life("7_3", 3, None), PREEMPTED, "requeued 3 times"),
        (Ended(True, 10, 0), FIRST, RUNNING, "gained no row"),
        # It may have had no time to load the model: that is nobody's fault.
        (Ended(True, 10, 0), FIRST, PREEMPTED, None),
    ],
)
def test_a_task_queues_itself_again_only_where_that_helps(
    ended: Ended, life: Life, view: JobView, reason: str | None
) -> None:
    found = why_not_again(ended, life, view, max_requeues=3)
    assert (found is None) == (reason is None), found
    assert reason is None or reason in (found or "")


def test_scratch_is_removed_and_what_is_not_ours_is_kept(tmp_path: Path) -> None:
    ours, shared = tmp_path / "a", tmp_path / "b"
    for folder in (ours, shared):
        for name in ("vllm", "triton", "torchinductor"):
            (folder / name / "deep").mkdir(parents=True)
    (shared / "thesis.tex").touch()
    for folder in (ours, shared, tmp_path / "absent"):
        remove_scratch(folder)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["b", "thesis.tex"]


# The whole task, with a controller that is faked.

SHOWN = "JobId=9 ArrayJobId=7 ArrayTaskId=3 JobState={state} Requeue=1 EndTime=Unknown\n"


def let_replies_come(run: Path, *, but_the_last: bool) -> None:
    *others, last = [request.instance_key for request in RunFolder.open(run).iter_requests()]
    delays_s = dict.fromkeys(others, 0.0) | {last: 3600.0 if but_the_last else 0.0}
    lines = [{"instance": key, "reply": "0", "delay_s": s} for key, s in delays_s.items()]
    # Beside the folder of all runs.
    script = run.parents[1] / "replies.jsonl"
    script.write_text("\n".join(map(json.dumps, lines)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose last reply does not come, so that a task is always met at its work."""
    script = tmp_path / "replies.jsonl"
    file = tmp_path / "night.yaml"
    file.write_text(
        f"run: night\noutput_dir: {tmp_path}/out\nmodel: {{path: none}}\n"
        "instances: {tasks: [REL-A1]}\nstore: {flush_rows: 1}\n"
        f"engine: {{kind: fake, fake_replies: scripted, fake_script: {script}}}\n"
    )
    config = read_config(file)
    folder = prepare_run(config, allow_rejected=False).run
    let_replies_come(folder.path, but_the_last=True)
    return folder.path


@pytest.fixture
def start_task(run: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts tasks of the run, none of which outlives its test."""
    tasks: list[subprocess.Popen[str]] = []

    def start(*options: object, **environ: str) -> subprocess.Popen[str]:
        variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), "SLURM_JOB_ID": "9"}
        variables |= {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
        command = [sys.executable, "-m", "rel_batch", "slurm", "task", run, *options]
        task = subprocess.Popen(
            list(map(str, command)),
            env=variables | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        tasks.append(task)
        return task

    yield start
    for task in tasks:
        task.kill()
        task.communicate()


def num_rows(run: Path) -> int:
    return len(RunFolder.open(run).finished_keys())


def wait_for_a_row(run: Path) -> None:
    end = time.monotonic() + 120
    while not num_rows(run):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "state", "requeues"),
    [
        (signal.SIGUSR2, "RUNNING", ["scontrol requeue 7_3"]),
        (signal.SIGTERM, "COMPLETING", []),
    ],
)
def test_a_task_that_is_stopped_keeps_its_rows_and_asks_the_controller(
    fake: FakeSlurm,
    run: Path,
    start_task: Callable[..., subprocess.Popen[str]],
    number: signal.Signals,
    state: str,
    requeues: list[str],
) -> None:
    fake.answer("scontrol", SHOWN.format(state=state))
    task = start_task()
    wait_for_a_row(run)
    task.send_signal(number)
    said, _ = task.communicate(timeout=240)
    assert task.returncode == 7, said
    assert f"stopped by {number.name}" in said
    assert 0 < num_rows(run) < 8
    assert [call for call in fake.calls if "requeue" in call] == requeues
    assert "scontrol --oneliner show job 7_3" in fake.calls
    # A second life, which SLURM counts, does the rest, and removes its caches.
    let_replies_come(run, but_the_last=False)
    scratch = run.parent / "scratch"
    (scratch / "vllm").mkdir(parents=True)
    again = start_task("--scratch", scratch, SLURM_RESTART_COUNT="1")
    said, _ = again.communicate(timeout=240)
    assert again.returncode == 0, said
    assert "task 7_3" in said
    assert "life 2" in said
    assert num_rows(run) == 8
    assert not scratch.exists()


def test_a_controller_that_does_not_answer_costs_no_row(
    fake: FakeSlurm, run: Path, start_task: Callable[..., subprocess.Popen[str]]
) -> None:
    fake.answer("scontrol", "", code=1, error="Unable to contact slurm controller")
    task = start_task()
    wait_for_a_row(run)
    task.send_signal(signal.SIGUSR2)
    said, _ = task.communicate(timeout=240)
    assert task.returncode == 7, said
    assert "cannot be requeued: " in said
    assert "Unable to contact" in said
    assert num_rows(run) > 0
