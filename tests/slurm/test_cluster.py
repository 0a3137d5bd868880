"""Arrays on a real SLURM: whatever happens to their tasks, the rows are exactly the plan.

The fake engine takes its time for each reply, so that a task can be met in the middle of its work.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cluster import until
from jobs import LONG_S, Job, Site

from rel_batch.launch.slurm_script import Placement, render_array
from rel_batch.slurm_settings import SlurmConfig
from rel_batch.store import RunFolder


@pytest.fixture(scope="module", autouse=True)
def limited(site: Site) -> Job:
    """A task whose limit comes before its only chunk is done; it runs beside all the others.

    SLURM looks at limits twice a minute, so it is told to stop after 60 to 90 s of its 96 s.
    """
    return site.submit(
        *("limited", "--time", 2, "--gpus-per-task", 0, "--sbatch", "signal=B:USR2@60"),
        delay_s=2.0,
        more="instances: {tasks: [REL-C1], limit: 1}\n"
        "arms: [{name: format, temperature: 0.7, samples: 48}]\n",
    )


def test_an_array_on_two_nodes_completes_and_is_reported(site: Site) -> None:
    job = site.submit("array", "--tasks", 4, report=True)
    job.wait()
    job.assert_complete()
    logs = [job.log(task) for task in range(4)]
    assert {re.search(r" on (n\d)", log)[1] for log in logs} == {"n1", "n2"}
    # Two tasks on each node, and each has a GPU of its own there.
    assert sorted(re.search(r" on (n\d), .*GPUs (\d)", log).groups() for log in logs) == [
        *(("n1", "0"), ("n1", "1"), ("n2", "0"), ("n2", "1"))
    ]
    assert set(job.states().values()) == {"COMPLETED"}
    page = (job.run / "report" / "report.html").read_text()
    assert "array" in page


def test_a_run_that_is_complete_is_not_queued_again(site: Site) -> None:
    said = site.rel_batch("slurm", "submit", site.folder / "array.yaml")
    assert "nothing is left to run" in said


def test_a_task_that_finds_nothing_to_do_ends_at_once(site: Site) -> None:
    run = site.folder / "outputs" / "array"
    script = site.folder / "again.sbatch"
    text = next((run / "slurm").glob("array-*.sbatch")).read_text()
    script.write_text(re.sub(r"--output=.*", f"--output={site.folder}/again.log", text))
    job = site.cluster.command("sbatch", "--parsable", "--array=0", script)
    until(lambda: site.cluster.queue(job) == {f"{job}_0": "COMPLETED"}, LONG_S, "it works")
    assert "0 to do" in (site.folder / "again.log").read_text()


def test_a_task_that_is_cancelled_stays_away_and_the_others_finish_its_work(site: Site) -> None:
    job = site.submit("cancelled", "--tasks", 2, delay_s=0.5)
    job.wait_until_at_work(2)
    site.cluster.command("scancel", f"{job.array}_0")
    job.wait()
    job.assert_complete()
    assert [job.lives(task) for task in range(2)] == [1, 1]
    assert job.states()[f"{job.array}_0"] == "CANCELLED"


def test_a_lost_node_costs_no_row(site: Site) -> None:
    job = site.submit("lost", "--tasks", 4, delay_s=1.0)
    job.wait_until_at_work(4)
    site.cluster.lose("n2")
    job.wait()
    site.cluster.bring_back("n2")
    job.assert_complete()


def test_the_last_task_requeues_itself_and_not_the_array(site: Site) -> None:
    # Its SLURM_JOB_ID is that of the array: requeueing that would rerun every task.
    job = site.submit("last", "--tasks", 2, delay_s=0.5)
    job.wait_until_at_work(2)
    site.cluster.command("scancel", "--batch", "--signal=USR2", f"{job.array}_1")
    job.wait()
    job.assert_complete()
    assert "is requeued" in job.log(1)
    assert [job.lives(task) for task in range(2)] == [1, 2]


def test_a_gentle_end_keeps_the_rows_and_a_new_submission_goes_on(site: Site) -> None:
    job = site.submit("ended", "--tasks", 2, "--throttle", 1, delay_s=1.0, report=True)
    job.wait_until_at_work()
    shown = site.rel_batch("slurm", "status", job.run)
    assert f"array job {job.array}: " in shown
    assert "1 running" in shown
    assert "1 pending" in shown
    # And the run's own view, in which a worker bears its task's name.
    assert f"slurm-{job.array}_0-0" in shown
    assert "claimed" in shown
    said = site.rel_batch("slurm", "cancel", job.run)
    assert "1 tasks left the queue, 1 that run finish" in said
    job.wait()
    rows = job.num_rows()
    assert 0 < rows < RunFolder.open(job.run).manifest["num_requests"]
    assert "not requeued: requeueing is switched off" in job.log(0)
    # The report job came, and said what is missing.
    assert (job.run / "report" / "report.html").exists()
    [log] = job.run.glob(f"logs/*-{job.report}.log")
    assert "incomplete" in log.read_text()
    again = site.submit("ended", "--tasks", 2)
    again.wait()
    again.assert_complete()


def test_a_submission_that_fails_half_way_can_be_finished_and_cancelled(site: Site) -> None:
    config = site.config("half", delay_s=0.3, more="slurm: {report: {partition: nowhere}}\n")
    said = site.rel_batch("slurm", "submit", config, code=6)
    found = re.search(r"array job (\d+) \(1 tasks\) is queued", said)
    assert found is not None, said
    assert "invalid partition" in said
    run = site.folder / "outputs" / "half"
    # What the hint says works, once the cause is mended.
    script = Path(re.search(r"sbatch (\S+);", said)[1])
    script.write_text(script.read_text().replace("nowhere", "main"))
    report = site.cluster.command("sbatch", "--parsable", script)
    job = Job(site, run, found[1], report)
    job.wait()
    job.assert_complete()
    assert (run / "report" / "report.html").exists()


def test_a_refused_array_leaves_nothing_queued(site: Site) -> None:
    config = site.config("refused", delay_s=0.3)
    said = site.rel_batch("slurm", "submit", config, "--partition", "nowhere", code=6)
    assert "nothing is queued" in said
    assert "is queued and will run" not in said


def test_the_nodes_of_an_engine_find_each_other(site: Site) -> None:
    program = site.folder / "program"
    program.write_text(
        "#!/bin/bash\n"
        'echo "$REL_BATCH_HEAD $SLURM_STEP_NUM_NODES $SLURM_NODEID $CUDA_VISIBLE_DEVICES" '
        f">> {site.folder}/nodes-$SLURM_NODEID\n"
        f"[ $SLURM_NODEID = 0 ] && exit 7\nsleep 600\n"
    )
    program.chmod(0o755)
    place = Placement("nodes", str(program), "run", site.folder)
    script = site.folder / "nodes.sbatch"
    script.write_text(render_array(SlurmConfig(nodes_per_task=2, time="10"), place))
    job = site.cluster.command("sbatch", "--parsable", script)
    # The node that follows ends with the one that leads.
    until(lambda: site.cluster.queue(job) == {f"{job}_0": "FAILED"}, LONG_S, "it goes on")
    head = f"127.0.0.1:{20000 + int(job) % 10000}"
    for node in range(2):
        assert (site.folder / f"nodes-{node}").read_text() == f"{head} 2 {node} 0\n"


def test_a_limit_shorter_than_the_work_costs_no_row(limited: Job) -> None:
    limited.wait()
    limited.assert_complete()
    assert {request.chunk for request in RunFolder.open(limited.run).iter_requests()} == {0}
    assert "stopped by SIGUSR2" in limited.log(0)
    assert limited.lives(0) > 1


# These need both nodes whole, so they come when `limited` has left its own.


def test_a_preempted_task_is_requeued_by_slurm_alone(site: Site) -> None:
    job = site.submit("preempted", "--tasks", 2, "--partition", "low", delay_s=1.0)
    job.wait_until_at_work(2)
    high = site.cluster.command(
        *("sbatch", "--parsable", "-p", "high", "-N2", "--exclusive", "-o", "/dev/null"),
        *("--wrap", "sleep 1"),
    )
    until(lambda: site.cluster.queue(high) == {high: "COMPLETED"}, LONG_S, "no room is made")
    job.wait()
    job.assert_complete()
    assert [job.lives(task) for task in range(2)] == [2, 2]


def test_a_task_that_is_warned_of_preemption_requeues_itself(site: Site) -> None:
    job = site.submit("warned", "--partition", "grace", delay_s=0.6)
    job.wait_until_at_work()
    high = site.cluster.command(
        *("sbatch", "--parsable", "-p", "high", "-N2", "--exclusive", "-o", "/dev/null"),
        *("--wrap", "sleep 1"),
    )
    until(lambda: site.cluster.queue(high) == {high: "COMPLETED"}, LONG_S, "no room is made")
    job.wait()
    job.assert_complete()
    assert "stopped by SIGUSR2" in job.log(0)
    assert "is requeued" in job.log(0)
    assert job.lives(0) == 2
