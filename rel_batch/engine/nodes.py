"""One engine over several nodes, for a model that is larger than a node: vLLM's own support.

    nodes = Nodes.from_environment(os.environ)            # None on a single node
    LLM(**arguments | nodes.arguments)                    # on the node that leads
    follow(arguments | nodes.arguments, log_file, ended)  # on the others, until that one has ended

The nodes find each other by REL_BATCH_HEAD (host:port, set by the script) and by the number that
SLURM gives each node of a step. No Ray is needed. Surprising: a node that follows has no engine,
no claims and no store; it runs its share of each forward pass. vLLM does not tell it when the
engine has ended, so it asks.
"""

# vLLM is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import multiprocessing.connection
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rel_batch.engine.process import output_to
from rel_batch.errors import EngineError

HEAD = "REL_BATCH_HEAD"
# How often a node that follows asks whether the engine has ended.
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Nodes:
    """This node's place among those of one engine.

    Attributes:
        number: how many nodes there are, at least 2.
        rank: which of them this is; 0 leads.
        host, port: where the one that leads is met.
    """

    number: int
    rank: int
    host: str
    port: int

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self | None:
        """None where an engine has one node. Raises EngineError for half a description."""
        head = environ.get(HEAD)
        if not head:
            return None
        host, _, port = head.rpartition(":")
        number, rank = environ.get("SLURM_STEP_NUM_NODES", ""), environ.get("SLURM_NODEID", "")
        if not host or not all(text.isascii() and text.isdigit() for text in (port, number, rank)):
            raise EngineError(
                f"{HEAD} is {head!r}, SLURM_STEP_NUM_NODES {number!r} and SLURM_NODEID {rank!r}: "
                "expected host:port and two numbers",
                hint="start it by srun with one task on each node, as slurm/multi_node.sbatch does",
            )
        if int(number) < 2:
            return None
        return cls(int(number), int(rank), host, int(port))

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def arguments(self) -> dict[str, Any]:
        """vLLM's arguments for this place."""
        return {
            "nnodes": self.number,
            "node_rank": self.rank,
            "master_addr": self.host,
            "master_port": self.port,
            "distributed_executor_backend": "mp",
        }


def follow(arguments: Mapping[str, Any], log_file: Path, ended: Callable[[], bool]) -> None:
    """Run this node's share of an engine that another node leads, until that one has `ended`.

    `arguments` are vLLM's for this node. Raises EngineError if a process of the share dies before.
    """
    from vllm.config import StructuredOutputsConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    with output_to(log_file):
        grammars = StructuredOutputsConfig(**arguments["structured_outputs_config"])
        own: dict[str, Any] = {**arguments, "structured_outputs_config": grammars}
        config = EngineArgs(**own).create_engine_config(UsageContext.LLM_CLASS, headless=True)
        executor = MultiprocExecutor(config, monitor_workers=False)
        sentinels = [worker.proc.sentinel for worker in executor.workers]
        try:
            while not multiprocessing.connection.wait(sentinels, timeout=_LOOK_S):
                if ended():
                    return
            # The other nodes' processes end, too, when the engine does.
            if not ended():
                raise EngineError(
                    "this node's share of the engine has died", hint=f"see the end of {log_file}"
                )
        finally:
            executor.shutdown()
