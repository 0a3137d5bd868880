"""What a run will generate: every request, its key and its chunk.

The plan is a function of the config and the instances alone; how many workers there are is no
part of it. Requests of one instance stay next to each other, so that arms that share a prompt
share its KV cache; chunks are cut by estimated cost, costliest first, so that the last chunks to
finish are small.

    key = hash(instance key, prompt token ids, model commit, arm, sample, run seed)

Surprising: prompts are rendered here to be hashed and counted, and again when a chunk is run,
because the ids of all prompts of a run (REL-B is 100 million tokens) are not worth keeping.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rel_batch.config import ArmConfig
from rel_batch.constraints import Constraint
from rel_batch.constraints.options import options_of
from rel_batch.prompts import PromptRenderer
from rel_batch.records import Compiled, Instance, PlannedRequest, Request
from rel_batch.tasks import task_for
from rel_batch.thoughts import Thinking
from rel_batch.variants import Asked, Variants

# In prompt tokens: what a generated token costs, and how much work one chunk holds.
_COST_OF_OUTPUT_TOKEN = 8
_CHUNK_COST = 400_000
_RENDER_BATCH = 64
# Without a constraint a model explains itself first; cut at a bare label's length, it would
# count as truncated whatever it was about to answer.
_FREE_REPLY_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """All requests of a run, in the order of their chunks.

    Attributes:
        requests: every planned request.
        longest: tokens of the longest request, prompt, thought and reply together; 0 for none.
        num_prompt_tokens: sum over requests.
        remarks: what a reader of the config may not expect: tasks that an arm is left out for.
    """

    requests: tuple[PlannedRequest, ...]
    longest: int
    num_prompt_tokens: int
    remarks: tuple[str, ...] = ()


def plan_requests(
    instances: Sequence[Instance],
    arms: Sequence[ArmConfig],
    renderer: PromptRenderer,
    *,
    model_commit: str,
    seed: int,
) -> Plan:
    """Plan instance x arm x sample.

    An arm whose constraint kind means nothing for a task is left out for that task, and so is one
    that ranks options where a constraint is no short list; `Plan.remarks` says so once. Raises
    EngineError if a prompt cannot be rendered, ConfigError if the model cannot think as an arm has
    it, or there are too few instances for an arm's worked examples.
    """
    left_out: dict[tuple[str, str], set[str]] = {}
    groups: list[tuple[int, list[PlannedRequest]]] = []
    reserved = {arm.name: _num_reserved_tokens(arm, renderer) for arm in arms}
    for instance, prompts in _rendered(instances, arms, renderer):
        group: list[PlannedRequest] = []
        cost = 0
        task = task_for(instance.task)
        for arm, prompt in zip(arms, prompts, strict=True):
            if prompt is None:
                why = f"constraint {arm.constraint} means nothing there"
                left_out.setdefault((arm.name, why), set()).add(instance.task)
                continue
            max_tokens = max_tokens_of(arm, instance.task)
            constraint = task.constraint(instance, arm.constraint)
            if arm.decoding == "likelihood" and options_of(constraint) is None:
                why = "there is no short list of options to rank"
                left_out.setdefault((arm.name, why), set()).add(instance.task)
                continue
            prompt_digest = hashlib.sha256(array("q", prompt).tobytes()).hexdigest()
            # Arms that share a prompt share its cost.
            cost = max(cost, len(prompt))
            for sample in range(arm.samples):
                key = _digest(
                    instance.key, prompt_digest, model_commit, _arm_identity(arm), sample, seed
                )
                group.append(
                    PlannedRequest(
                        key=key[:24],
                        instance_key=instance.key,
                        task=instance.task,
                        arm=arm.name,
                        sample=sample,
                        seed=int(key[24:39], 16) if arm.temperature > 0 else None,
                        chunk=0,
                        num_prompt_tokens=len(prompt),
                        max_tokens=max_tokens,
                        constraint_kind=constraint.kind,
                        constraint_digest=constraint.digest,
                        num_reserved_tokens=reserved[arm.name],
                    )
                )
                # Thoughts come nearer to their bound than replies to theirs.
                expected = max_tokens // 4 + arm.thought_tokens // 2
                cost += expected * _COST_OF_OUTPUT_TOKEN
        if group:
            groups.append((cost, group))
    requests = tuple(_in_chunks(groups))
    return Plan(
        requests=requests,
        longest=max((r.num_context_tokens for r in requests), default=0),
        num_prompt_tokens=sum(r.num_prompt_tokens for r in requests),
        remarks=(
            *(
                f"arm {arm} is left out for {', '.join(sorted(tasks))}: {why}"
                for (arm, why), tasks in left_out.items()
            ),
            *(
                f"arm {arm.name}: the model has no system role, so its system prompt is put before "
                "the question"
                for arm in arms
                if arm.system_prompt and not renderer.has_system_role
            ),
        ),
    )


def materialise(
    planned: Iterable[PlannedRequest],
    instances: Mapping[str, Instance],
    arms: Mapping[str, ArmConfig],
    renderer: PromptRenderer,
    compiled: Mapping[str, Compiled],
) -> Iterator[Request]:
    """Planned requests with their prompts and constraints, lazily and in order.

    `instances` are all of the run's, as worked examples are drawn from them; `compiled` says by its
    digest how each constraint compiled.
    """
    last_key = ""
    variants = Variants(instances.values())
    prompts: dict[Asked, tuple[int, ...]] = {}
    constraints: dict[str, Constraint] = {}
    thinking = {arm.name: thinking_of(arm, renderer) for arm in arms.values()}
    for request in planned:
        instance = instances[request.instance_key]
        if request.instance_key != last_key:
            last_key = request.instance_key
            prompts.clear()
        arm = arms[request.arm]
        asked = variants.asked(instance, arm)
        if asked not in prompts:
            prompts |= _prompts_of([asked], renderer)
        constraint = constraints.get(request.constraint_digest)
        if constraint is None:
            if len(constraints) > 1024:
                constraints.clear()
            constraint = task_for(instance.task).constraint(instance, arm.constraint)
            constraints[request.constraint_digest] = constraint
        options: tuple[str, ...] = ()
        if arm.decoding == "likelihood" or arm.measure_distortion:
            options = options_of(constraint) or ()
        yield Request(
            planned=request,
            prompt_token_ids=prompts[asked],
            constraint=constraint,
            temperature=arm.temperature,
            top_p=arm.top_p,
            thinking=thinking[arm.name],
            markers=renderer.markers,
            thought_opened=renderer.thought_state(think=asked.think) == "open",
            options=tuple((option, renderer.continuation_ids(option)) for option in options),
            decoding=arm.decoding,
            measure_distortion=arm.measure_distortion,
            compiled=compiled.get(request.constraint_digest),
        )


def thinking_of(arm: ArmConfig, renderer: PromptRenderer) -> Thinking | None:
    """How an arm's requests think. Raises ConfigError where the model cannot think that way."""
    return renderer.thinking(
        arm.thinking,
        budget=arm.thought_tokens,
        on_budget=arm.on_budget,
        answers_at_once=arm.constraint != "none",
        arm=arm.name,
    )


def max_tokens_of(arm: ArmConfig, task: str) -> int:
    """The bound on a reply: the arm's; else the task's own, with room to talk if it is free."""
    if isinstance(arm.max_tokens, int):
        return arm.max_tokens
    if arm.max_tokens != "auto":
        for name, bound in arm.max_tokens.items():
            if name == task:
                return bound
    own = task_for(task).max_tokens
    return max(own, _FREE_REPLY_TOKENS) if arm.constraint == "none" else own


def _num_reserved_tokens(arm: ArmConfig, renderer: PromptRenderer) -> int:
    thinking = thinking_of(arm, renderer)
    thought = thinking.num_reserved_tokens if thinking else 0
    # An engine that measures a reply generates one token after it.
    return thought + int(arm.measure_distortion)


def _rendered(
    instances: Sequence[Instance], arms: Sequence[ArmConfig], renderer: PromptRenderer
) -> Iterator[tuple[Instance, list[tuple[int, ...] | None]]]:
    """Each instance with its prompt for each arm, None where the arm's constraint means nothing."""
    variants = Variants(instances)
    for start in range(0, len(instances), _RENDER_BATCH):
        batch = instances[start : start + _RENDER_BATCH]
        asked = [
            [
                variants.asked(instance, arm)
                if arm.constraint in task_for(instance.task).constraint_kinds
                else None
                for arm in arms
            ]
            for instance in batch
        ]
        prompts = _prompts_of([one for row in asked for one in row if one], renderer)
        for instance, row in zip(batch, asked, strict=True):
            yield instance, [one and prompts[one] for one in row]


def _prompts_of(asked: Iterable[Asked], renderer: PromptRenderer) -> dict[Asked, tuple[int, ...]]:
    """The prompt of each, rendered once."""
    alike: dict[tuple[str, bool], list[Asked]] = {}
    for one in dict.fromkeys(asked):
        alike.setdefault((one.system, one.think), []).append(one)
    prompts: dict[Asked, tuple[int, ...]] = {}
    for (system, think), some in alike.items():
        rendered = renderer.render([one.question for one in some], think=think, system=system)
        prompts.update(zip(some, rendered, strict=True))
    return prompts


def _arm_identity(arm: ArmConfig) -> str:
    return json.dumps(arm.model_dump(mode="json"), sort_keys=True)


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()


def _in_chunks(groups: list[tuple[int, list[PlannedRequest]]]) -> Iterator[PlannedRequest]:
    # Sorting is stable, and the key breaks ties, so that the order of the files is no part of it.
    groups = sorted(groups, key=lambda group: (-group[0], group[1][0].key))
    chunk, filled = 0, 0
    for cost, group in groups:
        if filled and filled + cost > _CHUNK_COST:
            chunk, filled = chunk + 1, 0
        filled += cost
        for request in group:
            yield PlannedRequest(**{name: getattr(request, name) for name in _FIELDS}, chunk=chunk)


_FIELDS = tuple(name for name in PlannedRequest.__dataclass_fields__ if name != "chunk")
