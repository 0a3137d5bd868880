"""A run of three arms on bundled instances: the fake engine's replies, through the real store.

What the fake model says is decided by a hash of instance, arm and sample, so that a run is the
same each time. It is right more often at low RC and under a constraint, and sometimes hostile.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

from rel_batch.config import ArmConfig
from rel_batch.engine.fake import FakeEngine, FakeReply
from rel_batch.instances import read_instances
from rel_batch.judge import constraint_for
from rel_batch.plan import plan_requests
from rel_batch.prompts import ByteTokenizer, PromptRenderer
from rel_batch.records import Instance, Request
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder
from rel_batch.tasks import task_for

TASKS = ("REL-A3", "REL-B1", "REL-C1", "REL-C3")
ARMS = (
    ArmConfig(name="none", constraint="none", max_tokens=400),
    ArmConfig(name="format", max_tokens=400),
)
HOSTILE = (
    "<script>window.hostile = 1</script><img src=x onerror='window.hostile = 2'>"
    "</script><svg onload=window.hostile=3>[click](javascript:window.hostile=4)"
)


def ablation_run(
    path: Path,
    *,
    arms: Sequence[ArmConfig] = ARMS,
    instances: Sequence[Instance] | None = None,
    model: str = "example/model-1b",
    skill: float = 0.5,
) -> RunFolder:
    """A finished and scored run; `skill` is how often the fake model is right at RC 2."""
    if instances is None:
        instances = read_instances("bundled", tasks=TASKS)
    renderer = PromptRenderer(ByteTokenizer(), "auto")
    plan = plan_requests(instances, arms, renderer, model_commit="c0ffee", seed=0)
    manifest = {
        "identity": {
            "model": {"name": model, "commit": "c0ffee" * 6 + "c0ff"},
            "engine": {"kind": "fake", "backend": "guidance"},
            "arms": [arm.model_dump(mode="json") for arm in arms],
        },
        "versions": {"rel_batch": "0.0.0"},
    }
    by_name = {arm.name: arm for arm in arms}
    by_key = {instance.key: instance for instance in instances}
    run = RunFolder.create(path, manifest, instances, plan.requests)
    engine = FakeEngine(lambda request: _reply(request, by_key, skill))
    requests = (
        Request(
            planned=planned,
            prompt_token_ids=(),
            constraint=constraint_for(
                by_key[planned.instance_key], by_name[planned.arm].constraint
            ),
            temperature=by_name[planned.arm].temperature,
            top_p=1.0,
        )
        for planned in plan.requests
    )
    # The clock is no part of what a test compares.
    done = [dataclasses.replace(c, latency_s=0.5) for c in engine.generate(requests)]
    for chunk in sorted({completion.chunk for completion in done}):
        run.publish_part(chunk, [c for c in done if c.chunk == chunk])
    score_run(run)
    return run


def _reply(request: Request, instances: dict[str, Instance], skill: float) -> FakeReply:
    planned = request.planned
    instance = instances[planned.instance_key]
    reference = task_for(instance.task).reference_reply(instance)
    # The same draw for all arms, so that they agree more often than not, and one of its own.
    luck = _draw(instance.key, planned.sample)
    own = _draw(instance.key, planned.arm, planned.sample)
    chance = skill + (0.1 if planned.constraint_kind != "none" else 0.0) - 0.04 * (instance.rc - 2)
    if planned.constraint_kind == "none" and own < 0.25:
        return FakeReply(HOSTILE if own < 0.1 else "I am not sure; let me think about it. " * 3)
    if own > 0.95:
        return FakeReply(reference[: len(reference) // 2], "length")
    if 0.8 * luck + 0.2 * own < chance:
        return FakeReply(reference)
    return FakeReply(_wrong(instance, reference))


def _wrong(instance: Instance, reference: str) -> str:
    if instance.task.startswith("REL-A"):
        return str((int(reference) + 1) % 8)
    if instance.task == "REL-C1":
        return "<Yes>" if reference == "<No>" else "<No>"
    if instance.task == "REL-B1":
        return "No" if reference != "No" else "Yes: " + "t1"
    return "<smiles>CCCCCCCCCC</smiles>"


def _draw(*parts: object) -> float:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32
