"""Runs on the cluster of the tests: submitting, watching and holding them to the plan."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

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

    def wait(self, within_s: float = LONG_S) -> None:
        """Wait until the array and the report job have ended."""
        done = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
        queue = self.site.cluster.queue
        until(
            lambda: set((queue(self.array) | queue(self.report)).values()) <= done,
            within_s,
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
