"""From a config to everything that a run needs before an engine starts.

`run` and `check` both begin here: instances are read, the checkpoint and its commit are found,
prompts are rendered and counted, and every distinct constraint is compiled with the run's own
backend and tokenizer. Nothing here writes to the run folder or starts an engine.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rel_batch import __version__
from rel_batch.checkpoint import Checkpoint, resolve_checkpoint
from rel_batch.config import InstancesConfig, RunConfig
from rel_batch.constraints import Constraint
from rel_batch.engine.canary import CANARY_TOKENS
from rel_batch.errors import DataError, EngineError
from rel_batch.instances import InstanceSet, read_instances
from rel_batch.instances.hub import HUB, Release, fetch_release
from rel_batch.launch.setup import constraint_compiler
from rel_batch.plan import CompileConstraint, Plan, compile_nothing, max_tokens_of, plan_requests
from rel_batch.prompts import ByteTokenizer, PromptRenderer, load_tokenizer
from rel_batch.records import Instance, PlannedRequest
from rel_batch.tasks import task_for

_FAKE_COMMIT = "fake"
# The canary's prompt and reply, with a chat template around them.
_LEAST_CONTEXT = CANARY_TOKENS + 224
# Bytes that an arm may put around a question: a chat template, what asks for a form, a reply.
_MOST_ADDED = 2048


@dataclass(frozen=True)
class Prepared:
    """A planned run.

    Attributes:
        instances: the frozen instances, by key.
        skipped: complaints about the bad lines that were left out.
        release: the released set on the Hub, where instances are read from it.
        checkpoint: None for the fake engine.
        plan: every request; those longer than `max_model_len` are in it, too.
        max_model_len: tokens of context that the engine gets.
    """

    config: RunConfig
    instances: Mapping[str, Instance]
    skipped: tuple[str, ...]
    release: Release | None
    checkpoint: Checkpoint | None
    tokenizer: Any
    renderer: PromptRenderer
    plan: Plan
    max_model_len: int

    def fits(self, request: PlannedRequest) -> bool:
        """Whether prompt, thought and reply fit the context together."""
        return request.num_context_tokens <= self.max_model_len

    def constraint_of(self, request: PlannedRequest) -> Constraint:
        """The constraint of a planned request."""
        arm = next(arm for arm in self.config.arms if arm.name == request.arm)
        return task_for(request.task).constraint(
            self.instances[request.instance_key], arm.constraint
        )

    def distinct_constraints(self) -> Iterator[Constraint]:
        """Every constraint of the plan once, `none` left out."""
        seen: set[str] = set()
        for request in self.plan.requests:
            if request.constraint_kind != "none" and request.constraint_digest not in seen:
                seen.add(request.constraint_digest)
                yield self.constraint_of(request)

    @functools.cached_property
    def compile_constraint(self) -> CompileConstraint:
        """Says how a constraint compiles for the run's backend and tokenizer."""
        return constraint_compiler(self.config, self.tokenizer)

    @functools.cached_property
    def rejected_constraints(self) -> dict[str, str]:
        """Digest and reason of every constraint that does not compile; all are compiled for it."""
        if self.compile_constraint is compile_nothing:
            return {}
        compiled = ((c.digest, self.compile_constraint(c)) for c in self.distinct_constraints())
        return {d: c.problem for d, c in compiled if c is not None and c.problem is not None}

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        return identity_of(self.config, self.instances, self.checkpoint, self.renderer)

    def manifest(self, versions: Mapping[str, str]) -> dict[str, Any]:
        """What the run folder says about itself."""
        return {
            "identity": self.identity,
            "config": self.config.model_dump(mode="json", exclude={"slurm"}),
            "versions": {"rel_batch": __version__, **versions},
            "num_instances": len(self.instances),
            "num_requests": len(self.plan.requests),
            "max_model_len": self.max_model_len,
            "working_folder": str(Path.cwd()),
            # Workers take it from there, and ask no Hub.
            "checkpoint": self.checkpoint and str(self.checkpoint.path),
            "skipped": list(self.skipped),
            "released": self.release and self.release.record(),
        }


@dataclass(frozen=True)
class Inputs:
    """What a run is made of: all that there is before a tokenizer is loaded.

    Attributes:
        checkpoint: None for the fake engine.
    """

    instances: Mapping[str, Instance]
    skipped: tuple[str, ...]
    release: Release | None
    checkpoint: Checkpoint | None

    @property
    def num_question_bytes(self) -> int:
        """What is to be tokenised, about."""
        return sum(len(instance.question) for instance in self.instances.values())

    def most_context_tokens(self, config: RunConfig) -> int:
        """A context that any request of the run fits, or the longest that the model was made for.

        No tokenizer in use makes more tokens of a text than it has bytes.
        """
        if config.model.max_model_len != "auto":
            return config.model.max_model_len
        longest = max((len(i.question.encode()) for i in self.instances.values()), default=0)
        tasks = {instance.task for instance in self.instances.values()}
        most = _LEAST_CONTEXT + max(
            (longest + _MOST_ADDED) * (1 + arm.examples)
            + len((arm.system_prompt or "").encode())
            + arm.thought_tokens
            + max(max_tokens_of(arm, task) for task in tasks)
            for arm in config.arms
        )
        limit = self.checkpoint.max_position_embeddings if self.checkpoint else None
        return most if limit is None else min(most, limit)


def read_inputs(config: RunConfig) -> Inputs:
    """Read and validate the instances, and find the checkpoint. Raises RelBatchError."""
    if config.engine.kind == "vllm":
        _check_engine(config)
    found, release = read_configured(config.instances)
    return Inputs(
        instances={instance.key: instance for instance in found},
        skipped=tuple(found.skipped),
        release=release,
        checkpoint=resolve_checkpoint(config.model) if config.engine.kind == "vllm" else None,
    )


def load_renderer(config: RunConfig, checkpoint: Checkpoint | None) -> tuple[Any, PromptRenderer]:
    """The tokenizer of a run, and what makes its prompts. Raises EngineError."""
    tokenizer: Any = ByteTokenizer()
    if checkpoint is not None:
        tokenizer = load_tokenizer(
            config.model.tokenizer or str(checkpoint.path),
            revision=None,
            trust_remote_code=config.model.trust_remote_code,
        )
    return tokenizer, PromptRenderer(tokenizer, config.chat_template, config.model.thinks)


def prepare(config: RunConfig, inputs: Inputs | None = None) -> Prepared:
    """Read, validate, render and plan, with `inputs` where they have been read. Raises
    RelBatchError."""
    inputs = inputs or read_inputs(config)
    instances, checkpoint = inputs.instances, inputs.checkpoint
    tokenizer, renderer = load_renderer(config, checkpoint)
    plan = plan_requests(
        list(instances.values()),
        config.arms,
        renderer,
        model_commit=checkpoint.commit if checkpoint else _FAKE_COMMIT,
        seed=config.seed,
    )
    if not plan.requests:
        raise DataError(
            "the plan is empty: no arm's constraint kind means anything for the tasks given, or "
            "none of their constraints is a short list of options that a likelihood arm could rank",
            hint="rel-batch tasks shows the kinds of each task",
        )
    return Prepared(
        config=config,
        instances=instances,
        skipped=inputs.skipped,
        release=inputs.release,
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        renderer=renderer,
        plan=plan,
        max_model_len=_max_model_len(config, plan, checkpoint),
    )


def identity_of(
    config: RunConfig,
    instances: Mapping[str, Instance],
    checkpoint: Checkpoint | None,
    renderer: PromptRenderer,
) -> dict[str, Any]:
    """Everything that decides what the rows are; another identity is another run."""
    return {
        "instances": instances_digest(instances),
        "model": {
            "name": config.model.path,
            "commit": checkpoint.commit if checkpoint else _FAKE_COMMIT,
            "tokenizer": config.model.tokenizer,
            "dtype": config.model.dtype,
            "max_model_len": config.model.max_model_len,
            "thinks": config.model.thinks,
        },
        "template": renderer.template_digest,
        "engine": {
            "kind": config.engine.kind,
            "backend": config.engine.backend,
            "engine_args": dict(config.engine.engine_args),
            **({"batch_invariant": True} if config.engine.batch_invariant else {}),
        },
        "seed": config.seed,
        "arms": [arm.model_dump(mode="json") for arm in config.arms],
    }


def _check_engine(config: RunConfig) -> None:
    """Before anything is read: is there an engine, and does it know the arguments given?"""
    if importlib.util.find_spec("vllm") is None:
        raise EngineError(
            "vLLM is not installed here; score, report and export work without it",
            hint="pip install 'rel-batch[gpu]', or 'rel-batch[cpu]' for the CPU build",
        )
    if config.engine.engine_args:
        from rel_batch.engine.vllm_arguments import check_engine_args  # slow: loads torch

        check_engine_args(config.engine.engine_args)


def instances_digest(instances: Mapping[str, Instance]) -> str:
    """A digest of the set of instances, whatever their order."""
    return hashlib.sha256("\n".join(sorted(instances)).encode()).hexdigest()[:32]


def read_configured(settings: InstancesConfig) -> tuple[InstanceSet, Release | None]:
    """The instances that a config asks for, and the release that they are of, if any."""
    sources = [settings.source] if isinstance(settings.source, str) else list(settings.source)
    release = fetch_release(settings.revision) if HUB in sources else None
    folder = None if release is None else release.folder
    found = read_instances(
        [folder if source == HUB and folder else source for source in sources],
        taxa_notation=settings.taxa_notation,
        skip_bad=settings.skip_bad,
        tasks=settings.tasks,
    )
    return InstanceSet(tuple(_first_of_each(found, settings.limit)), found.skipped), release


def _first_of_each(instances: Iterable[Instance], limit: int | None) -> Iterator[Instance]:
    """At most `limit` instances of each task and subset."""
    taken: Counter[tuple[str, str]] = Counter()
    for instance in instances:
        group = (instance.task, instance.subset)
        if limit is None or taken[group] < limit:
            taken[group] += 1
            yield instance


def _max_model_len(config: RunConfig, plan: Plan, checkpoint: Checkpoint | None) -> int:
    """The longest planned request, but no more than the model was made for."""
    if config.model.max_model_len != "auto":
        return config.model.max_model_len
    longest = max(plan.longest, _LEAST_CONTEXT)
    limit = checkpoint.max_position_embeddings if checkpoint else None
    if limit is None or plan.longest <= limit:
        return longest if limit is None else min(longest, limit)
    lengths = (r.num_context_tokens for r in plan.requests)
    return max((length for length in lengths if length <= limit), default=limit)
