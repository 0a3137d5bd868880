"""Kill a run with several workers again and again, and see whether anything is lost.

    python benchmarks/chaos.py --kills 100
    python benchmarks/chaos.py --kills 15 --forked     # without the cost of starting Python

Where byte code may not lie beside the sources, the processes share a folder for it, or each of them
would compile everything again.

Each round starts `rel-batch run --workers 3` with the fake engine in a process of its own, kills
this and that at random moments, starts the command again where the parent is gone, and looks at the
folder when the run is complete: the keys are exactly the plan's, no key has two rows, the rows are
those of an undisturbed run, no process is left and no claim. Rounds follow until there were so many
kills. JSON on standard output; exit code 1 where anything was wrong.

With `--forked` every process of rel-batch is a fork of this one, which has imported everything
already; what they do is the same.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rel_batch.cli import main as main_of_rel_batch
from rel_batch.instances import read_instances
from rel_batch.store import RunFolder
from rel_batch.store.claim_files import CLAIMS
from rel_batch.store.clock import file_system_now
from rel_batch.store.survey import read_survey
from rel_batch.tasks import task_for

CONFIG = """
run: {name}
model: {{path: none}}
engine: {{kind: fake, fake_replies: scripted, fake_script: replies.jsonl, fake_process: true,
  max_in_flight: 4}}
arms: [{{name: a}}, {{name: b, constraint: none}}, {{name: c, temperature: 1.0, samples: 2}}]
store: {{flush_rows: 3, claim_timeout_s: 20}}
"""
WAITS_S = 3.0


class Run:
    """One run that is killed until it is complete."""

    def __init__(self, folder: Path, name: str, workers: int, popen: Any) -> None:
        self.popen = popen
        self.folder = folder
        self.path = folder / "outputs" / name
        self.config = folder / f"{name}.yaml"
        self.config.write_text(CONFIG.format(name=name), encoding="utf-8")
        self.workers = workers
        self.parent: subprocess.Popen[bytes] | Forked | None = None
        self.sessions: list[int] = []
        self.exits: Counter[int] = Counter()

    def ensure_parent(self) -> bool:
        """Start the command where it does not run; False when it has completed the run."""
        if self.parent is not None:
            if self.parent.poll() is None:
                return True
            self.exits[self.parent.returncode] += 1
            if self.parent.returncode == 0:
                return False
        self.parent = self._start("run", str(self.config), "--workers", str(self.workers))
        return True

    def _start(self, *arguments: str) -> subprocess.Popen[bytes] | Forked:
        with (self.folder / "said.log").open("ab") as log:
            process = self.popen(
                [sys.executable, "-m", "rel_batch", *arguments],
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self.sessions.append(process.pid)
        return process

    # What can be killed. Each gives the pid of what it has found, or None.

    def a_worker(self) -> int | None:
        return random.choice(list(self._worker_pids().values()) or [None])

    def an_engine(self) -> int | None:
        engines = [child for pid in self._worker_pids().values() for child in _children(pid)]
        return random.choice(engines or [None])

    def the_parent(self) -> int | None:
        return self.parent.pid if self.parent is not None else None

    def a_worker_in_a_publish(self) -> int | None:
        def look() -> int | None:
            for file in (self.path / "completions").glob(".chunk-*.tmp"):
                chunk = int(file.name.split(".")[1].removeprefix("chunk-"))
                owners = {c.chunk: c.worker for c in self._survey().claims}
                return self._worker_pids().get(owners.get(chunk, ""))
            return None

        return _wait_for(look)

    def a_worker_in_a_claim(self) -> int | None:
        def look() -> int | None:
            for file in (self.path / CLAIMS).glob(".claim-*.tmp"):
                worker = file.name.removeprefix(".claim-").removesuffix(".tmp")
                return self._worker_pids().get(worker)
            return None

        return _wait_for(look)

    def a_compaction(self) -> int | None:
        if not (self.path / "manifest.json").exists():
            return None
        process = self._start("compact", str(self.path))
        time.sleep(random.uniform(0.0, 0.3) if self.popen is Forked else random.uniform(0.5, 3.0))
        return process.pid if process.poll() is None else None

    def _survey(self) -> Any:
        return read_survey(self.path, now=file_system_now(self.path))

    def _worker_pids(self) -> dict[str, int]:
        if not (self.path / CLAIMS).is_dir():
            return {}
        found = {w.worker: w.info.get("pid") for w in self._survey().workers}
        return {worker: pid for worker, pid in found.items() if pid and _session(pid)}

    def problems(self, undisturbed: RunFolder) -> list[str]:
        """What is wrong with the completed run."""
        problems: list[str] = []
        run = RunFolder.open(self.path)
        rows = list(run.iter_completions())
        keys = [row.request_key for row in rows]
        planned = {request.key for request in run.iter_requests()}
        if set(keys) != planned or len(keys) != len(planned):
            problems.append(f"{len(keys)} rows, {len(set(keys))} keys, {len(planned)} planned")
        if _comparable(rows) != _comparable(list(undisturbed.iter_completions())):
            problems.append("the rows are not those of an undisturbed run")
        left = [f.name for f in (self.path / CLAIMS).glob("*") if not f.name.startswith("death-")]
        if left:
            problems.append(f"left in claims/: {left}")
        deadline = time.monotonic() + 20
        while orphans := [pid for pid in _pids() if _session(pid) in self.sessions]:
            if time.monotonic() > deadline:
                problems.append(f"processes are left: {orphans}")
                break
            time.sleep(0.2)
        return problems


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay-s", type=float, default=0.1)
    parser.add_argument("--pause-s", type=float, default=1.0, help="between two kills, on average")
    parser.add_argument("--forked", action="store_true")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    if arguments.forked:
        fork_everything()
    popen = Forked if arguments.forked else subprocess.Popen
    started = time.monotonic()
    kills: Counter[str] = Counter()
    exits: Counter[int] = Counter()
    problems: list[str] = []
    rounds = rows_twice = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
            os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "pycache")
        write_script(folder, arguments.delay_s)
        undisturbed = undisturbed_run(folder, popen)
        while kills.total() < arguments.kills:
            run = Run(folder, f"round{rounds}", arguments.workers, popen)
            most = kills.total() + max(20, arguments.kills // 4)
            while run.ensure_parent():
                if kills.total() < most:
                    time.sleep(random.expovariate(1 / arguments.pause_s))
                    kill_something(run, kills)
                else:
                    time.sleep(0.2)
            problems += run.problems(undisturbed)
            exits += run.exits
            opened = RunFolder.open(run.path)
            rows_twice += opened.count_rows(opened.completion_parts()) - len(opened.finished_keys())
            rounds += 1
            print(f"round {rounds}: {dict(kills)} {problems}", file=sys.stderr, flush=True)
    result = {
        "kills": kills.total(),
        "kills_by_kind": dict(sorted(kills.items())),
        "rounds": rounds,
        "exit_codes": {str(code): n for code, n in sorted(exits.items())},
        "rows_generated_twice": rows_twice,
        "problems": problems,
        "wall_s": round(time.monotonic() - started, 1),
    }
    print(json.dumps(result, indent=2))
    sys.exit(bool(problems))


class Forked:
    """As much of subprocess.Popen as is needed, for a fork that runs rel-batch's command line."""

    def __init__(self, command: list[str], **options: Any) -> None:
        read, write = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(write)
            os._exit(_as_command(command[3:], read, options))
        os.close(read)
        self.stdin = os.fdopen(write, "wb")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (1e9 if timeout is None else timeout)
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("forked", timeout or 0.0)
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)


def _as_command(arguments: list[str], stdin: int, options: dict[str, Any]) -> int:
    """Be `rel-batch ARGUMENTS` in this forked process; its exit code."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    if options.get("start_new_session"):
        os.setsid()
    if options.get("process_group") is not None:
        os.setpgid(0, options["process_group"])
    if options.get("cwd"):
        os.chdir(options["cwd"])
    if options.get("env"):
        os.environ.update(options["env"])
    os.dup2(options["stderr"].fileno(), 1)
    os.dup2(options["stderr"].fileno(), 2)
    sys.argv = ["rel-batch", *arguments]
    sys.stdin = os.fdopen(stdin)
    # Or a forked child would draw what its siblings draw.
    random.seed()
    try:
        main_of_rel_batch()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def fork_everything() -> None:
    """Import all that the commands import, and have them fork where they would start Python."""
    import rel_batch.cli.commands
    import rel_batch.cli.progress
    import rel_batch.launch.background
    import rel_batch.launch.local
    import rel_batch.launch.supervisor
    import rel_batch.report

    rel_batch.launch.supervisor.subprocess.Popen = Forked  # type: ignore
    fork = multiprocessing.get_context("fork")
    rel_batch.launch.background.multiprocessing.get_context = lambda _: fork  # type: ignore


def kill_something(run: Run, kills: Counter[str]) -> None:
    """Kill one of the kinds at random, if there is one now."""
    kinds: list[tuple[str, Callable[[], int | None], int]] = [
        ("a worker -9", run.a_worker, signal.SIGKILL),
        ("a worker -15", run.a_worker, signal.SIGTERM),
        ("an engine -9", run.an_engine, signal.SIGKILL),
        ("the parent -9", run.the_parent, signal.SIGKILL),
        ("the parent -15", run.the_parent, signal.SIGTERM),
        ("during a publish -9", run.a_worker_in_a_publish, signal.SIGKILL),
        ("during a claim -9", run.a_worker_in_a_claim, signal.SIGKILL),
        ("a compaction -9", run.a_compaction, signal.SIGKILL),
    ]
    # What happens seldom by chance is tried more often.
    name, find, number = random.choices(kinds, weights=(3, 2, 3, 1, 1, 4, 4, 1))[0]
    pid = find()
    if pid is None:
        return
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    kills[name] += 1


def write_script(folder: Path, delay_s: float) -> None:
    """Reference replies of the bundled instances, each after a delay."""
    lines = [
        {
            "instance": instance.key,
            "reply": task_for(instance.task).reference_reply(instance),
            "delay_s": delay_s,
        }
        for instance in read_instances("bundled")
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "replies.jsonl").write_text(text, encoding="utf-8")


def undisturbed_run(folder: Path, popen: Any) -> RunFolder:
    """The same run, with one worker and without a kill."""
    config = folder / "undisturbed.yaml"
    config.write_text(CONFIG.format(name="undisturbed"), encoding="utf-8")
    command = [sys.executable, "-m", "rel_batch", "run", str(config), "--workers", "1"]
    with (folder / "said.log").open("ab") as log:
        assert popen(command, cwd=folder, stdout=log, stderr=log).wait() == 0
    return RunFolder.open(folder / "outputs" / "undisturbed")


def _comparable(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted((r.request_key, r.status, r.reply, r.output_token_ids, r.seed) for r in rows)


def _wait_for(look: Callable[[], int | None]) -> int | None:
    deadline = time.monotonic() + WAITS_S
    while time.monotonic() < deadline:
        if (pid := look()) is not None:
            return pid
        time.sleep(0.0005)
    return None


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _children(pid: int) -> list[int]:
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _session(pid: int) -> int | None:
    """The session of a living process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[3])


if __name__ == "__main__":
    main()
