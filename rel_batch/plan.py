"""What a run will generate: every request, its key and its chunk.

The plan is a function of the config and the instances alone; how many workers there are is no
part of it. Requests of one instance stay next to each other, and so do instances whose prompts
begin alike for half of their length, so that they share its KV cache. Chunks are cut by estimated
cost, costliest first, each a small share of what is left: so any number of workers up to about a
thousand ends at about the same time, and a finished plan has some ten thousand chunks at most. An
instance with more samples than fit a chunk is cut, too, where that repeats little of its prompt.

    key = hash(instance key, prompt token ids, model commit, arm, sample, run seed)

Surprising: prompts are rendered here to be hashed and counted, and again when a chunk is run,
because the ids of all prompts of a run (REL-B is 100 million tokens) are not worth keeping.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from rel_batch.config import ArmConfig
from rel_batch.constraints import Constraint
from rel_batch.constraints.options import options_of
from rel_batch.prompts import PromptRenderer
from rel_batch.records import Compiled, Instance, PlannedRequest, Request
from rel_batch.tasks import task_for
from rel_batch.thoughts import Thinking
from rel_batch.variants import Asked, Variants

# Costs are in prompt tokens: what a generated token costs, and what a chunk holds.
COST_OF_OUTPUT_TOKEN = 8
_CHUNK_OF_REST = 1 / 2048
_CHUNK_OF_ALL = 1 / 65536
# About a second of a GPU: a chunk costs some 20 ms, most of it for writing its part.
_LEAST_CHUNK_COST = 16_000
# A cut between requests that share tokens has them computed twice: at most for so much of a chunk.
_MOST_REPEATED = 1 / 16
# Beginnings shorter than this are not worth keeping prompts together for.
_LEAST_SHARED_TOKENS = 1024
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
    groups: list[_Group] = []
    reserved = {arm.name: _num_reserved_tokens(arm, renderer) for arm in arms}
    identities = {arm.name: _arm_identity(arm) for arm in arms}
    for instance, prompts in _rendered(instances, arms, renderer):
        group: list[PlannedRequest] = []
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
            # Worked out once for all samples: of a million requests this is most of the time.
            parts = (instance.key, prompt_digest, model_commit, identities[arm.name])
            digest = hashlib.sha256("\0".join(parts).encode())
            kind, constraint_digest = constraint.kind, constraint.digest
            for sample in range(arm.samples):
                of_sample = digest.copy()
                of_sample.update(f"\0{sample}\0{seed}".encode())
                key = of_sample.hexdigest()
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
                        constraint_kind=kind,
                        constraint_digest=constraint_digest,
                        num_reserved_tokens=reserved[arm.name],
                    )
                )
        if group:
            longest = max((prompt for prompt in prompts if prompt), key=len)
            groups.append(_Group(tuple(group), cost_of(group), *_beginning(longest)))
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


CompileConstraint = Callable[[Constraint], Compiled | None]


def compile_nothing(constraint: Constraint) -> None:
    """For an engine that compiles no constraints."""
    del constraint


class Materialiser:
    """Gives planned requests their prompts and constraints, best in the order of the plan."""

    def __init__(
        self,
        instances: Mapping[str, Instance],
        arms: Iterable[ArmConfig],
        renderer: PromptRenderer,
        compile_constraint: CompileConstraint,
    ) -> None:
        """`instances` are all of the run's, as worked examples are drawn from them;
        `compile_constraint` is asked of each constraint just before it is needed."""
        self._instances = instances
        self._arms = {arm.name: arm for arm in arms}
        self._renderer = renderer
        self._compile = compile_constraint
        self._variants = Variants(instances.values())
        self._thinking = {arm.name: thinking_of(arm, renderer) for arm in self._arms.values()}
        self._last_key = ""
        self._prompts: dict[Asked, tuple[int, ...]] = {}
        self._constraints: dict[str, tuple[Constraint, Compiled | None]] = {}

    def __call__(self, planned: PlannedRequest) -> Request:
        """The request with all that an engine needs."""
        instance, arm = self._instances[planned.instance_key], self._arms[planned.arm]
        if planned.instance_key != self._last_key:
            self._last_key = planned.instance_key
            self._prompts.clear()
        asked = self._variants.asked(instance, arm)
        if asked not in self._prompts:
            self._prompts |= _prompts_of([asked], self._renderer)
        constraint, compiled = self._constraint_of(planned, instance, arm)
        options: tuple[str, ...] = ()
        if arm.decoding == "likelihood" or arm.measure_distortion:
            options = options_of(constraint) or ()
        return Request(
            planned=planned,
            prompt_token_ids=self._prompts[asked],
            constraint=constraint,
            temperature=arm.temperature,
            top_p=arm.top_p,
            thinking=self._thinking[arm.name],
            markers=self._renderer.markers,
            thought_opened=self._renderer.thought_state(think=asked.think) == "open",
            options=tuple((option, self._renderer.continuation_ids(option)) for option in options),
            decoding=arm.decoding,
            measure_distortion=arm.measure_distortion,
            compiled=compiled,
        )

    def _constraint_of(
        self, planned: PlannedRequest, instance: Instance, arm: ArmConfig
    ) -> tuple[Constraint, Compiled | None]:
        digest = planned.constraint_digest
        if digest not in self._constraints:
            if len(self._constraints) > 1024:
                self._constraints.clear()
            constraint = task_for(instance.task).constraint(instance, arm.constraint)
            self._constraints[digest] = constraint, self._compile(constraint)
        return self._constraints[digest]


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


_Rendered = tuple[Instance, list[tuple[int, ...] | None]]


def _rendered(
    instances: Sequence[Instance], arms: Sequence[ArmConfig], renderer: PromptRenderer
) -> Iterator[_Rendered]:
    """Each instance with its prompt for each arm, None where the arm's constraint means nothing."""
    variants = Variants(instances)

    def rendered(batch: Sequence[Instance]) -> list[_Rendered]:
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
        return [
            (instance, [one and prompts[one] for one in row])
            for instance, row in zip(batch, asked, strict=True)
        ]

    # A tokenizer works beside Python: while one batch is planned, the next is tokenised.
    with ThreadPoolExecutor(max_workers=1) as thread:
        before: Future[list[_Rendered]] | None = None
        for start in range(0, len(instances), _RENDER_BATCH):
            batch = thread.submit(rendered, instances[start : start + _RENDER_BATCH])
            if before is not None:
                yield from before.result()
            before = batch
        if before is not None:
            yield from before.result()


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


# Chunks.


def cost_of(requests: Iterable[PlannedRequest]) -> int:
    """What requests of one instance are expected to cost, in prompt tokens.

    Requests that share a prompt share its cost.
    """
    prompts: set[int] = set()
    cost = 0
    for request in requests:
        cost += _cost_after(prompts, request)
        prompts.add(request.num_prompt_tokens)
    return cost


def _cost_after(prompts: set[int], request: PlannedRequest) -> int:
    """What a request costs after others of its instance with prompts of these lengths."""
    new = 0 if request.num_prompt_tokens in prompts else request.num_prompt_tokens
    return expected_cost(new, request.max_tokens, request.num_reserved_tokens)


def expected_cost(num_new_prompt_tokens: int, max_tokens: int, num_reserved_tokens: int) -> int:
    """What a request is expected to cost, in prompt tokens; a cached prompt costs nothing."""
    # Thoughts come nearer to their bound than replies to theirs.
    output = max_tokens // 4 + num_reserved_tokens // 2
    return num_new_prompt_tokens + output * COST_OF_OUTPUT_TOKEN


@dataclass(frozen=True, slots=True)
class _Group:
    """Requests that stay together: those of one instance.

    `beginning` stands for the first `num_shared_tokens` of its longest prompt.
    """

    requests: tuple[PlannedRequest, ...]
    cost: int
    beginning: str
    num_shared_tokens: int


def _beginning(prompt: tuple[int, ...]) -> tuple[str, int]:
    """A digest of at least the first half of a prompt, and its length; ("", 0) for a short one."""
    length = 1 << max(len(prompt).bit_length() - 1, 0)
    if length < _LEAST_SHARED_TOKENS:
        return "", 0
    return hashlib.sha256(array("q", prompt[:length]).tobytes()).hexdigest(), length


def _in_chunks(groups: Iterable[_Group]) -> Iterator[PlannedRequest]:
    # The key breaks ties, so that the order of the files is no part of the plan.
    groups = sorted(groups, key=lambda group: (-group.cost, group.requests[0].key))
    total = sum(group.cost for group in groups)
    units = sorted(
        _units(groups, total * _CHUNK_OF_REST),
        key=lambda unit: (-unit[0], unit[1][0].requests[0].key),
    )
    cut = _Cutter(total)
    for cost, unit in units:
        cut.before(cost)
        for group in unit:
            cut.before(group.cost, num_shared_tokens=group.num_shared_tokens)
            if group.cost <= cut.size:
                cut.fill(group.cost)
                yield from (_in_chunk(request, cut.chunk) for request in group.requests)
                continue
            prompts: set[int] = set()
            for request in group.requests:
                if cut.before(
                    _cost_after(prompts, request), num_shared_tokens=request.num_prompt_tokens
                ):
                    prompts.clear()
                cut.fill(_cost_after(prompts, request))
                prompts.add(request.num_prompt_tokens)
                yield _in_chunk(request, cut.chunk)


class _Cutter:
    """Says where a chunk ends."""

    def __init__(self, total: int) -> None:
        self.chunk = 0
        self._total = self._rest = total
        self._filled = 0
        self.size = self._size()

    def before(self, cost: int, *, num_shared_tokens: int = 0) -> bool:
        """Begin another chunk where this one would get too large, and is worth a repetition."""
        if not self._filled or self._filled + cost <= self.size:
            return False
        if num_shared_tokens > self._filled * _MOST_REPEATED:
            return False
        self.chunk += 1
        self._rest -= self._filled
        self._filled = 0
        self.size = self._size()
        return True

    def fill(self, cost: int) -> None:
        self._filled += cost

    def _size(self) -> float:
        return max(
            self._rest * _CHUNK_OF_REST, self._total * _CHUNK_OF_ALL, float(_LEAST_CHUNK_COST)
        )


def _in_chunk(request: PlannedRequest, chunk: int) -> PlannedRequest:
    # Nobody has seen it yet, and to make a million of them a second time takes seconds.
    object.__setattr__(request, "chunk", chunk)
    return request


def _units(groups: Iterable[_Group], most: float) -> Iterator[tuple[int, list[_Group]]]:
    """Groups whose prompts begin alike, together up to a cost of `most`, and the others alone."""
    families: dict[str, list[_Group]] = {}
    for group in groups:
        families.setdefault(group.beginning or group.requests[0].key, []).append(group)
    for family in families.values():
        unit: list[_Group] = []
        cost = 0
        for group in family:
            added = group.cost - (group.num_shared_tokens if unit else 0)
            if unit and cost + added > most:
                yield cost, unit
                unit, cost, added = [], 0, group.cost
            unit.append(group)
            cost += added
        yield cost, unit
