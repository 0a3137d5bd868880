"""What SLURM's commands print, and what is read from it."""

from __future__ import annotations

import pytest

from rel_batch.launch.slurm import (
    QueuedTask,
    parse_history,
    parse_job_id,
    parse_job_view,
    parse_queue,
)

# From SLURM 22.05, shortened.
VIEW = (
    "JobId=3 ArrayJobId=1 ArrayTaskId=2 JobName=rel-night UserId=root(0) JobState={state} "
    "Reason=None Dependency=(null) Requeue={requeue} Restarts=0 ExitCode=0:0 RunTime=00:00:23 "
    "TimeLimit=00:10:00 TimeMin=N/A EndTime=2026-11-30T20:53:41 {preempt}Partition=grace \n"
)


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("4711\n", "4711"),
        ("4711;alps\n", "4711"),
        ("Welcome to Alps!\n4711\n", "4711"),
        ("Submitted batch job 4711\n", None),
        ("", None),
        ("4711 4712\n", None),
    ],
)
def test_a_job_id_is_the_last_line_and_nothing_else(text: str, job: str | None) -> None:
    assert parse_job_id(text) == job


@pytest.mark.parametrize(
    ("text", "state", "may_requeue", "preempted"),
    [
        (VIEW.format(state="RUNNING", requeue=1, preempt=""), "RUNNING", True, False),
        (VIEW.format(state="COMPLETING", requeue=1, preempt=""), "COMPLETING", True, False),
        (VIEW.format(state="RUNNING", requeue=0, preempt=""), "RUNNING", False, False),
        (
            VIEW.format(state="RUNNING", requeue=1, preempt="PreemptTime=2026-11-30T20:43:49 "),
            "RUNNING",
            True,
            True,
        ),
        (VIEW.format(state="RUNNING", requeue=1, preempt="PreemptTime=None "), "RUNNING", True, 0),
    ],
)
def test_the_controller_says_what_becomes_of_a_task(
    text: str, state: str, may_requeue: bool, preempted: bool
) -> None:
    view = parse_job_view(text)
    assert view is not None
    assert (view.state, view.may_requeue, view.preempted) == (state, may_requeue, preempted)


@pytest.mark.parametrize("text", ["", "slurm_load_jobs error: Invalid job id specified\n"])
def test_no_job_is_no_view(text: str) -> None:
    assert parse_job_view(text) is None


def test_a_queue_is_read_line_by_line() -> None:
    text = (
        "8_0|RUNNING|None|n1|0:02|9:58\n"
        "8_1|PENDING|BeginTime||0:00|10:00\n"
        "9|PENDING|Dependency||0:00|1:00:00\n"
        "squeue: a complaint\n"
    )
    assert parse_queue(text) == [
        QueuedTask("8_0", "RUNNING", "None", "n1", "0:02", "9:58"),
        QueuedTask("8_1", "PENDING", "BeginTime", "", "0:00", "10:00"),
        QueuedTask("9", "PENDING", "Dependency", "", "0:00", "1:00:00"),
    ]


def test_a_history_keeps_the_state_and_not_who_caused_it() -> None:
    text = "8_0|COMPLETED|n1|00:10:00\n8_1|CANCELLED by 1000|n2|00:00:07\n\nnoise\n"
    assert parse_history(text) == [
        QueuedTask("8_0", "COMPLETED", nodes="n1", elapsed="00:10:00"),
        QueuedTask("8_1", "CANCELLED", nodes="n2", elapsed="00:00:07"),
    ]
