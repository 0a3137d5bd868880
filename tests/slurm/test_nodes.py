"""One engine over several nodes: how a node finds its place among them."""

from __future__ import annotations

import pytest

from rel_batch.engine.nodes import Nodes
from rel_batch.errors import EngineError

STEP = {"SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1"}


@pytest.mark.parametrize(
    ("environ", "nodes", "why"),
    [
        ({}, None, "no cluster"),
        (STEP, None, "a step of a task with workers of its own on each node"),
        ({"REL_BATCH_HEAD": ""}, None, "nothing is nothing"),
        ({"REL_BATCH_HEAD": "n1:20007"} | STEP, Nodes(2, 1, "n1", 20007), "a node that follows"),
        (
            {"REL_BATCH_HEAD": "n1:20007"} | STEP | {"SLURM_STEP_NUM_NODES": "1"},
            None,
            "one node needs no other",
        ),
        (
            {"REL_BATCH_HEAD": "fe80::1:20007"} | STEP,
            Nodes(2, 1, "fe80::1", 20007),
            "the port is what comes last",
        ),
    ],
)
def test_a_node_finds_its_place(environ: dict[str, str], nodes: Nodes | None, why: str) -> None:
    assert Nodes.from_environment(environ) == nodes, why


@pytest.mark.parametrize(
    "environ",
    [
        {"REL_BATCH_HEAD": "n1:20007"},
        {"REL_BATCH_HEAD": "n1"} | STEP,
        {"REL_BATCH_HEAD": "n1:"} | STEP,
        {"REL_BATCH_HEAD": "n1:20007"} | STEP | {"SLURM_NODEID": "x"},
    ],
)
def test_half_a_description_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(EngineError, match="expected host:port and two numbers"):
        Nodes.from_environment(environ)


def test_the_nodes_of_an_engine_differ_in_their_rank_alone() -> None:
    lead, follow = Nodes(2, 0, "n1", 20007), Nodes(2, 1, "n1", 20007)
    assert lead.leads
    assert not follow.leads
    assert lead.arguments | {"node_rank": 1} == follow.arguments
    assert lead.arguments["distributed_executor_backend"] == "mp"
