"""A real SLURM on this machine, for tests: a controller and two nodes on loopback, as root.

    with Cluster(Path("/tmp/short")) as cluster:
        cluster.command("sbatch", "--parsable", script)

Everything lives in one folder: configuration, keys, logs, state. Nothing outside it is written and
nothing but what was started here is stopped. Nodes claim CPUs, memory and GPUs that the machine
need not have. Surprising: a GPU has to be a device file to be counted, so a fake one is a link to
/dev/null; and the wait before a requeued job starts again follows from how long a credential
lives, which cannot be less than 5 s.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
NODES = ("n1", "n2")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_START_S = 60.0


def why_not() -> str | None:
    """Why no cluster can be started here, or None where it can."""
    if os.getuid() != 0:
        return "a SLURM for tests has to be started by root"
    missing = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    return f"SLURM is not installed ({', '.join(missing)}); see `make slurm`" if missing else None


class Cluster:
    """A controller and two nodes of 4 CPUs and 2 fake GPUs.

    Partitions: `main`; `low`, whose jobs are requeued at once where `high` needs their nodes;
    `grace`, the same after a signal and a minute; `high`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = _free_ports(len(NODES) + 1)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))},
            "PATH": _PATH,
            "SLURM_CONF": str(folder / "slurm.conf"),
        }

    def __enter__(self) -> Self:
        try:
            self._configure()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def command(self, *arguments: object) -> str:
        """What a SLURM command prints; an AssertionError with its complaint where it fails."""
        done = subprocess.run(
            [str(argument) for argument in arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout.strip()

    def queue(self, job: str, *, states: str = "all") -> dict[str, str]:
        """The state of each task of a job, by its id; jobs that ended long ago are absent."""
        text = self.command("squeue", "-h", "-r", "-t", states, "-o", "%i %T")
        pairs = (line.split() for line in text.splitlines())
        return {name: state for name, state in pairs if name.split("_")[0] == job}

    def lose(self, node: str) -> None:
        """Kill a node with everything that runs on it, as a power cut would."""
        steps = self._steps_on(node)
        self._kill(self.folder / f"slurmd.{node}.pid", signal.SIGKILL)
        for process in steps:
            for pid in _tree(process):
                _send(pid, signal.SIGKILL)
        self.command("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def bring_back(self, node: str) -> None:
        """Start a lost node again."""
        self._start_node(node)  # which reports to the controller, and is up again
        self._wait_idle()

    def close(self) -> None:
        """Stop the jobs, then the daemons."""
        for pid in self._steps_on(None):
            for process in _tree(pid):
                _send(process, signal.SIGKILL)
        for node in NODES:
            self._kill(self.folder / f"slurmd.{node}.pid", signal.SIGTERM)
        self._kill(self.folder / "slurmctld.pid", signal.SIGTERM)
        self._kill(self.folder / "munge" / "munged.pid", signal.SIGTERM)

    def _configure(self) -> None:
        folder = self.folder
        for name in ("munge", "state", "log", "gpu", *(f"spool/{node}" for node in NODES)):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        key = folder / "munge" / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        for gpu in range(2):
            (folder / "gpu" / f"nvidia{gpu}").symlink_to("/dev/null")
        (folder / "gres.conf").write_text(
            f"NodeName=n[1-{len(NODES)}] Name=gpu File={folder}/gpu/nvidia[0-1]\n"
        )
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        (folder / "slurm.conf").write_text(
            _CONF.format(
                folder=folder,
                port=self._port,
                first_port=self._port + 1,
                last_port=self._port + len(NODES),
                nodes=len(NODES),
            )
        )

    def _start(self) -> None:
        munge = self.folder / "munge"
        self._daemon(
            "munged",
            f"--socket={munge}/munge.socket",
            f"--key-file={munge}/munge.key",
            f"--pid-file={munge}/munged.pid",
            f"--log-file={self.folder}/log/munged.log",
            f"--seed-file={munge}/munged.seed",
        )
        self._daemon("slurmctld", "-f", str(self.folder / "slurm.conf"), "-c")
        for node in NODES:
            self._start_node(node)
        self._wait_idle()

    def _start_node(self, node: str) -> None:
        self._daemon("slurmd", "-f", str(self.folder / "slurm.conf"), "-N", node)

    def _daemon(self, *command: str) -> None:
        # The daemons put themselves into the background; their output must not hold our pipes.
        with (self.folder / "log" / f"{command[0]}.start").open("ab") as log:
            subprocess.run(
                command,
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=60,
                check=True,
            )

    def _wait_idle(self) -> None:
        def idle() -> bool:
            try:
                states = self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split()
            except AssertionError:  # the controller does not answer yet
                return False
            return len(states) == len(NODES) and set(states) <= {"idle", "mixed", "allocated"}

        until(idle, _START_S, "the nodes are not idle")

    def _steps_on(self, node: str | None) -> list[int]:
        """The processes that hold this cluster's job steps, on one node or on all."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if (entry / "comm").read_text().strip() != "slurmstepd":
                    continue
                environment = (entry / "environ").read_bytes().decode(errors="replace")
                ours = str(self.folder) in environment or str(self.folder) in str(
                    (entry / "cwd").readlink()
                )
                mine = node is None or self._node_of(int(entry.name)) == node
                if ours and mine:
                    found.append(int(entry.name))
        return found

    def _node_of(self, step: int) -> str | None:
        for pid in _tree(step):
            with contextlib.suppress(OSError):
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                for variable in variables:
                    if variable.startswith(b"SLURMD_NODENAME="):
                        return variable.partition(b"=")[2].decode()
        return None

    def _kill(self, pid_file: Path, how: signal.Signals) -> None:
        with contextlib.suppress(OSError, ValueError):
            pid = int(pid_file.read_text())
            # A pid file may outlive its daemon, and its number may be another's by now.
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            if str(self.folder) not in command:
                return
            _send(pid, how)
            until(lambda: not _alive(pid), 15.0, f"{command!r} does not end")


def until(condition: Callable[[], bool], limit_s: float, complaint: str) -> None:
    """Wait for a condition. Raises AssertionError with the complaint after `limit_s`."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"{complaint} after {limit_s:.0f} s"
        time.sleep(0.1)


def _free_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    while True:
        first = 20000 + secrets.randbelow(9000)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def _tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in task.read_text().split()]
    return found


def _alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _send(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)


_CONF = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/munge.socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
ReturnToService=2
KillWait=10
MessageTimeout=10
TCPTimeout=5
SlurmctldTimeout=30
SlurmdTimeout=30
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] \
CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:2
PartitionName=DEFAULT Nodes=n[1-{nodes}] MaxTime=INFINITE DefaultTime=10 State=UP
PartitionName=main Default=YES PriorityTier=5 PreemptMode=OFF
PartitionName=low PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=grace PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=high PriorityTier=9 PreemptMode=OFF
"""
