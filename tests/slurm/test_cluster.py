"""Arrays on a real SLURM: whatever happens to their tasks, the rows are exactly the plan.

The fake engine takes its time for each reply, so that a task can be met in the middle of its work.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from cluster import Cluster, until

from rel_batch.instances import read_instances
from rel_batch.store import RunFolder
from rel_batch.tasks import task_for

REPOSITORY = Path(__file__).parents[2]
# Nothing here takes so long, however loaded the machine is.
LONG_S = 240.0


@dataclasses.dataclass(frozen=True)
class Site:
    """A cluster, and a folder that its nodes see."""

    cluster: Cluster
    folder: Path

    def rel_batch(self, *arguments: object, code: int = 0) -> str:
        """What a command prints, on both streams."""
        done = subprocess.run(
            [sys.executable, "-m", "rel_batch", *map(str, arguments)],
            cwd=self.folder,
            env=self.cluster.environment
            | {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", "NO_COLOR": "1"}
            | {"XDG_CONFIG_HOME": str(self.folder / "home")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONG_S,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def config(self, name: str, *, delay_s: float, more: str = "") -> Path:
        """A run over the bundled instances that takes `delay_s` for each reply."""
        script = self.folder / f"replies-{delay_s}.jsonl"
        lines = [
            json.dumps(
                {
                    "instance": instance.key,
                    "reply": task_for(instance.task).reference_reply(instance),
                    "delay_s": delay_s,
                }
            )
            for instance in read_instances("bundled")
        ]
        script.write_text("\n".join(lines))
        file = self.folder / f"{name}.yaml"
        file.write_text(
            f"run: {name}\nmodel: {{path: none}}\n"
            f"engine: {{kind: fake, fake_replies: scripted, fake_script: {script}}}\n{more}"
        )
        return file

    def submit(
        self,
        name: str,
        *options: object,
        delay_s: float = 0.3,
        report: bool = False,
        more: str = "",
    ) -> Job:
        """Submit a run; without `report` its report job, which takes its time, is cancelled."""
        config = self.config(name, delay_s=delay_s, more=more)
        said = self.rel_batch("slurm", "submit", config, "--parsable", *options)
        array, report_job = said.splitlines()[-1].split()
        if not report:
            self.cluster.command("scancel", report_job)
        return Job(self, self.folder / "outputs" / name, array, report_job)


@dataclasses.dataclass(frozen=True)
class Job:
    """An array that works on a run, and the job that reports."""

    site: Site
    run: Path
    array: str
    report: str

    def log(self, task: int) -> str:
        [file] = self.run.glob(f"logs/*-{self.array}_{task}.log")
        return file.read_text()

    def lives(self, task: int) -> int:
        """How often a task has begun."""
        logs = list(self.run.glob(f"logs/*-{self.array}_{task}.log"))
        return sum(
            len(re.findall(r"^task \d+_\d+ on ", file.read_text(), re.MULTILINE)) for file in logs
        )

    def num_rows(self) -> int:
        return sum(1 for _ in RunFolder.open(self.run).iter_completions())

    def states(self) -> dict[str, str]:
        return self.site.cluster.queue(self.array)

    def wait_until_at_work(self, tasks: int = 1) -> None:
        """Wait until the first tasks have begun, and the run has a row but not all of them."""
        begun = range(tasks)
        until(lambda: all(map(self.lives, begun)), LONG_S, f"{self.run}: tasks do not start")
        until(lambda: self.num_rows() > 0, LONG_S, f"{self.run}: no rows")
        assert self.num_rows() < RunFolder.open(self.run).manifest["num_requests"]

    def wait(self) -> None:
        """Wait until the array and the report job have ended."""
        done = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
        queue = self.site.cluster.queue
        until(
            lambda: set((queue(self.array) | queue(self.report)).values()) <= done,
            LONG_S,
            f"{self.run} does not end",
        )

    def assert_complete(self) -> None:
        """The rows are exactly the plan, each with the reply that an undisturbed run has."""
        run = RunFolder.open(self.run)
        planned = Counter(request.key for request in run.iter_requests())
        assert Counter(row.request_key for row in run.iter_completions()) == planned
        instances = {instance.key: instance for instance in run.iter_instances()}
        for row in run.iter_completions():
            instance = instances[row.instance_key]
            assert row.status == "ok"
            assert row.reply == task_for(instance.task).reference_reply(instance)
        left = list((self.run / "claims").glob("chunk-*/worker-*"))
        assert left == []


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(cluster, tmp_path_factory.mktemp("site"))


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


def test_a_preempted_task_is_requeued_by_slurm_alone(site: Site) -> None:
    job = site.submit("preempted", "--tasks", 2, "--partition", "low", delay_s=0.5)
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
    job = site.submit("warned", "--partition", "grace")
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


def test_a_limit_shorter_than_the_work_costs_no_row(limited: Job) -> None:
    limited.wait()
    limited.assert_complete()
    assert {request.chunk for request in RunFolder.open(limited.run).iter_requests()} == {0}
    assert "stopped by SIGUSR2" in limited.log(0)
    assert limited.lives(0) > 1
