"""Small runs for tests: instances, requests and completions made by hand, in one line each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rel_batch.records import Completion, Instance, PlannedRequest
from rel_batch.store import RunFolder

IDENTITY = {"model": {"commit": "abc123"}, "arms": [{"name": "format"}], "seed": 1}
MANIFEST = {"identity": IDENTITY, "created": "2026-11-30"}

QUESTION = (
    "Complete the Raven's progressive matrix. Only return the missing panel index (0-7)!\n"
    "row 1: (1, 1, 1), (1, 1, 1), (1, 1, 1); row 2: (2, 2, 2), (2, 2, 2), (2, 2, 2); "
    "row 3: (3, 3, 3), (3, 3, 3), \n\nAnswer set:\n"
    + "".join(f"Answer {i}: ({i + 1}, {i + 1}, {i + 1})\n" for i in range(8))
)


def instance(number: int, *, subset: str = "3x3", target: int = 2) -> Instance:
    """A REL-A1 instance whose gold is `target`."""
    return Instance(
        key=f"i{number}",
        id=f"algebra_REL-A1_{number:05d}",
        task="REL-A1",
        subset=subset,
        question=QUESTION,
        answer={"target": target},
        metadata={"n": 3},
        rc=2,
        num_entities=9,
        source_file=f"REL-A1_{subset}.jsonl",
    )


def request(number: int, *, chunk: int = 0, arm: str = "format", **changes: Any) -> PlannedRequest:
    planned = PlannedRequest(
        key=f"r{number}-{arm}",
        instance_key=f"i{number}",
        task="REL-A1",
        arm=arm,
        sample=0,
        seed=None,
        chunk=chunk,
        num_prompt_tokens=300,
        max_tokens=16,
        constraint_kind="format",
        constraint_digest="d1",
    )
    return dataclasses.replace(planned, **changes)


def completion(
    number: int, *, chunk: int = 0, arm: str = "format", reply: str = "2", **changes: Any
) -> Completion:
    done = Completion(
        request_key=f"r{number}-{arm}",
        instance_key=f"i{number}",
        task="REL-A1",
        arm=arm,
        sample=0,
        chunk=chunk,
        status="ok",
        reply=reply,
        output_token_ids=(18, 1),
        finish_reason="stop",
        num_prompt_tokens=300,
        num_output_tokens=2,
        num_cached_tokens=0,
        constraint_kind="format",
        constraint_held=True,
        seed=None,
        error=None,
        latency_s=0.25,
    )
    return dataclasses.replace(done, **changes)


def new_run(
    path: Path,
    *,
    num_instances: int = 4,
    requests: Sequence[PlannedRequest] | None = None,
    instances: Sequence[Instance] | None = None,
) -> RunFolder:
    """A run of REL-A1 instances 0, 1, ... with one request each, all in chunk 0."""
    if instances is None:
        instances = [instance(number) for number in range(num_instances)]
    if requests is None:
        requests = [request(number) for number in range(len(instances))]
    return RunFolder.create(path, MANIFEST, instances, requests)
