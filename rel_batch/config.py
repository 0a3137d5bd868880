"""One YAML file describes one run: the schema, its defaults, and reading it with overrides.

    run: quickstart
    model: {path: google/gemma-3-270m-it}
    instances: {source: bundled}
    arms:
      - {name: format, constraint: format}

Strict: an unknown key is an error that names the nearest known one, a value of another type is
an error that names the key and what was expected, and a key given twice is an error. `--set
arms.0.max_tokens=64` overrides one value before validation.

Surprising: a relative path in a config is relative to the working directory, as on a command
line, not to the config file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from rel_batch.arm_grid import with_grid_expanded
from rel_batch.constraints import JSON_KINDS, Kind
from rel_batch.errors import ConfigError, nearest
from rel_batch.slurm_settings import SlurmConfig, SlurmReportConfig
from rel_batch.strict_yaml import parse_yaml
from rel_batch.thoughts import Mode, OnBudget

TASK_NAMES = (
    "REL-A1",
    "REL-A2",
    "REL-A3",
    "REL-A4",
    "REL-B1",
    "REL-C1",
    "REL-C2",
    "REL-C3",
    "REL-C4",
)
TaskName = Literal[
    "REL-A1",
    "REL-A2",
    "REL-A3",
    "REL-A4",
    "REL-B1",
    "REL-C1",
    "REL-C2",
    "REL-C3",
    "REL-C4",
]
TaxaNotation = Literal["names", "positions", "auto"]
Backend = Literal["default", "guidance", "xgrammar"]
# vLLM has these too. Each reason is a test (tests/engine/test_structured_outputs.py).
REFUSED_BACKENDS: Mapping[str, str] = {
    "auto": "vLLM would choose by the first request and check later ones with another backend",
    "outlines": "outlines_core 0.2.14 loses the spaces of a constraint, and reads no grammar",
    "lm-format-enforcer": "0.11.3 cannot be imported beside vLLM 0.32, and reads no grammar",
}
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
PositiveInt = Annotated[int, Field(ge=1)]

_MAX_CONFIG_BYTES = 1_000_000
_THINKING_BUDGET = 2048


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class InstancesConfig(_Section):
    """Which instances the run evaluates."""

    # "bundled", "hub", a file, a folder, a glob, or a list of these.
    source: str | tuple[str, ...] = "bundled"
    # Of the released set on the Hub: branch, tag or commit; resolved to a commit and recorded.
    revision: str | None = None
    # Only these tasks; all that the source holds by default.
    tasks: tuple[TaskName, ...] | None = None
    # At most this many instances of each task and subset, the first in the file's order.
    limit: PositiveInt | None = None
    # How REL-B1's gold names taxa; `auto` accepts only what the file proves.
    taxa_notation: TaxaNotation = "auto"
    # Leave out bad lines (counted and listed) instead of stopping at the first.
    skip_bad: bool = False

    @model_validator(mode="after")
    def _revision_is_of_the_hub(self) -> Self:
        sources = (self.source,) if isinstance(self.source, str) else self.source
        if self.revision is not None and "hub" not in sources:
            raise ValueError("revision is set, but source is not 'hub'")
        return self


class ModelConfig(_Section):
    """The checkpoint."""

    # A folder, or a model id on the Hugging Face Hub.
    path: Annotated[str, Field(min_length=1)]
    # Branch, tag or commit; resolved to a commit and recorded.
    revision: str | None = None
    # Tokenizer folder or id, where it is not the model's own.
    tokenizer: str | None = None
    trust_remote_code: bool = False
    # `auto` is vLLM's choice, except on a CPU without bf16 instructions: float32.
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    # `auto` is the longest planned request.
    max_model_len: PositiveInt | Literal["auto"] = "auto"
    # Whether the model has thoughts of its own: `auto` looks for markers in its chat template.
    thinks: Literal["auto", "never"] = "auto"


class EngineConfig(_Section):
    """What runs the requests."""

    kind: Literal["vllm", "fake"] = "vllm"
    # What masks the tokens: `default` is the backend that measured best for each constraint.
    # Never chosen by vLLM itself; what is no grammar is masked by our own matcher in any case.
    backend: Backend = "default"
    tensor_parallel_size: PositiveInt = 1
    # Requests that are submitted and not finished; bounds memory, not the batch size.
    max_in_flight: PositiveInt = 1024
    # GiB for the KV cache on a CPU (VLLM_CPU_KVCACHE_SPACE, which wins where it is set).
    cpu_kv_cache_gib: PositiveInt = 4
    # Any other argument of vLLM's engine, under its own name.
    engine_args: Mapping[str, Any] = {}
    # Replies that are the same whatever else is in the batch, at some cost in speed (vLLM's
    # VLLM_BATCH_INVARIANT; on GPUs that it knows).
    batch_invariant: bool = False
    # What the fake engine replies: the reference reply, nothing, or a script file.
    fake_replies: Literal["oracle", "mute", "scripted"] = "oracle"
    # For `scripted`: JSON Lines of {"instance": key or id, "reply": text, "finish_reason": ...}.
    fake_script: str | None = None
    # Whether the fake engine replies from a process of its own, as vLLM does, which can be killed.
    fake_process: bool = False

    @field_validator("backend", mode="before")
    @classmethod
    def _backend_passes_its_tests(cls, value: Any) -> Any:
        if value in REFUSED_BACKENDS:
            raise ValueError(f"{value} is refused: {REFUSED_BACKENDS[value]}")
        return value

    @property
    def num_devices(self) -> int:
        """Devices of one engine: tensor parallel times pipeline parallel."""
        stages = self.engine_args.get("pipeline_parallel_size", 1)
        stages = stages if isinstance(stages, int) and stages > 0 else 1
        return self.tensor_parallel_size * stages

    @model_validator(mode="after")
    def _script_goes_with_scripted(self) -> Self:
        if (self.fake_replies == "scripted") != (self.fake_script is not None):
            raise ValueError("fake_script is given exactly when fake_replies is 'scripted'")
        return self


class ArmConfig(_Section):
    """One way of decoding; every instance is run once per arm and sample."""

    name: Name
    constraint: Kind = "format"
    # vLLM refuses a request with more than 2.
    temperature: Annotated[float, Field(ge=0.0, le=2.0, strict=False)] = 0.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0, strict=False)] = 1.0
    samples: PositiveInt = 1
    # Bound on the reply in tokens: `auto` is the task's own; or one number; or one per task.
    max_tokens: PositiveInt | Literal["auto"] | Mapping[TaskName, PositiveInt] = "auto"
    # Before the answer: nothing; a thought in the model's own way; one that the prompt asks for.
    thinking: Mode = "none"
    # Bound on the thought in tokens (2,048 if not given), beside max_tokens for the answer.
    thinking_budget: PositiveInt | None = None
    # A thought that reaches its bound is closed and answered, or ends the reply.
    on_budget: OnBudget = "force_close"
    # What the model is told before the question. Without a chat template, or with one that has no
    # system role, it is put before the question, with a blank line between.
    system_prompt: Annotated[str, Field(min_length=1)] | None = None
    # Whether the prompt asks for JSON: `auto` does where the constraint is JSON.
    json_instruction: bool | Literal["auto"] = "auto"
    # So many other instances of the task are shown first, with their reference replies.
    examples: Annotated[int, Field(ge=0, le=64)] = 0
    # Draws them, for each instance; the run's seed has no part in it.
    examples_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    # `likelihood` decodes nothing: the reply is the option that the model ranks first.
    decoding: Literal["generate", "likelihood"] = "generate"
    # Also ask what the model would have said without the constraint: one more prefill per reply.
    measure_distortion: bool = False

    @model_validator(mode="after")
    def _samples_need_temperature(self) -> Self:
        if self.samples > 1 and self.temperature == 0.0:
            raise ValueError("samples above 1 need a temperature above 0: greedy replies are equal")
        return self

    @model_validator(mode="after")
    def _thinking_settings_go_together(self) -> Self:
        if self.thinking == "none" and self.thinking_budget is not None:
            raise ValueError("thinking_budget is set, but thinking is 'none'")
        return self

    @model_validator(mode="after")
    def _the_prompt_asks_for_what_the_constraint_admits(self) -> Self:
        if self.json_instruction is True and self.constraint not in ("none", *JSON_KINDS):
            raise ValueError(
                f"json_instruction is true, but constraint {self.constraint!r} admits no JSON"
            )
        if self.examples == 0 and self.examples_seed != 0:
            raise ValueError("examples_seed is set, but examples is 0")
        return self

    @model_validator(mode="after")
    def _measures_need_a_greedy_constraint(self) -> Self:
        for setting, wanted in (
            ("measure_distortion", self.measure_distortion),
            ("decoding: likelihood", self.decoding == "likelihood"),
        ):
            if wanted and self.constraint == "none":
                raise ValueError(f"{setting} needs a constraint: there is nothing to compare with")
            if wanted and self.temperature > 0.0:
                raise ValueError(
                    f"{setting} needs temperature 0: a drawn token that is not the model's first "
                    "choice was not overruled by the constraint"
                )
        if self.measure_distortion and self.decoding == "likelihood":
            raise ValueError("measure_distortion has nothing to measure where nothing is decoded")
        return self

    @property
    def json_kind(self) -> Kind:
        """The constraint's kind where that is JSON, else `json`: what a JSON reply is."""
        return self.constraint if self.constraint in JSON_KINDS else "json"

    @property
    def thought_tokens(self) -> int:
        """The bound on the thought, in tokens; 0 for none."""
        return 0 if self.thinking == "none" else self.thinking_budget or _THINKING_BUDGET


class StoreConfig(_Section):
    """When finished completions go to disk: after so many rows or seconds, what comes first, and
    when their chunk is finished; and how long a claim lasts."""

    flush_rows: PositiveInt = 512
    flush_s: Annotated[float, Field(gt=0.0, strict=False)] = 30.0
    # A worker that was not heard of for so long loses its chunks to others. NFS shows a change
    # after up to a minute.
    claim_timeout_s: Annotated[float, Field(gt=0.0, strict=False)] = 120.0


class ScoringConfig(_Section):
    """What the second pass computes beside the strict verdict."""

    # REL-C2: share of gold's atoms in the common substructure. Slow, so only on request.
    overlap: bool = False
    # The verdict by gold without its known faults, beside the strict one (docs/data.md).
    audited: bool = False


class RunConfig(_Section):
    """A whole run. `run` names its folder below `output_dir`."""

    run: Name
    output_dir: Annotated[str, Field(min_length=1)] = "outputs"
    # Decides every random choice of the run.
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    instances: InstancesConfig = InstancesConfig()
    model: ModelConfig
    engine: EngineConfig = EngineConfig()
    # Whether the chat template is used: `auto` uses it where the tokenizer has one.
    chat_template: Literal["auto", "none"] = "auto"
    arms: Annotated[tuple[ArmConfig, ...], Field(min_length=1)] = (ArmConfig(name="format"),)
    store: StoreConfig = StoreConfig()
    scoring: ScoringConfig = ScoringConfig()
    # How a cluster is asked for machines; no part of what the run is.
    slurm: SlurmConfig = SlurmConfig()

    @model_validator(mode="after")
    def _arm_names_are_unique(self) -> Self:
        names = [arm.name for arm in self.arms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two arms are called {twice[0]!r}")
        return self

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.output_dir) / self.run


def read_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read `path` and apply `key=value` overrides (dotted keys, YAML values).

    Raises ConfigError with the key, what was expected and the nearest known name.
    """
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_CONFIG_BYTES} bytes: not a config")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read the config {path}: {error.strerror}",
            hint="see configs/ for examples",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason}") from error
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a config is a mapping of keys to values", hint=_EXAMPLE)
    settings = cast(dict[str, Any], data)
    for override in overrides:
        _apply_override(settings, override)
    return validate_config(settings, str(path))


def validate_config(data: Mapping[str, Any], where: str) -> RunConfig:
    """The config in `data`. Raises ConfigError."""
    try:
        return RunConfig.model_validate(_lists_to_tuples(with_grid_expanded(data, where)))
    except ValidationError as error:
        locations = [_config_keys(problem["loc"]) for problem in error.errors()]
        # A member of a union that fails as a whole says nothing beside its failing part.
        problems = [
            _explain(dict(problem), loc)
            for problem, loc in zip(error.errors(), locations, strict=True)
            if not any(len(other) > len(loc) and other[: len(loc)] == loc for other in locations)
        ]
        raise ConfigError(
            "\n".join(f"{where}: {problem}" for problem in dict.fromkeys(problems))
        ) from error


_EXAMPLE = "the shortest config is:  run: name  /  model: {path: folder-or-hub-id}"


def _apply_override(data: dict[str, Any], override: str) -> None:
    key, equals, value_text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            f"--set {override!r}: expected key=value", hint="for example --set arms.0.max_tokens=64"
        )
    value = parse_yaml(value_text, f"--set {key}") if value_text.strip() else None
    *parents, last = key.strip().split(".")
    target: Any = data
    for position, part in enumerate(parents):
        following = parents[position + 1] if position + 1 < len(parents) else last
        target = _descend(target, part, key, create=not following.isdigit())
    if isinstance(target, list):
        items = cast(list[Any], target)
        items[_list_index(items, last, key)] = value
    elif isinstance(target, dict):
        target[last] = value
    else:
        raise ConfigError(f"--set {key}: {'.'.join(parents)} is a value and has no keys")


def _descend(target: Any, part: str, key: str, *, create: bool) -> Any:
    if isinstance(target, list):
        items = cast(list[Any], target)
        return items[_list_index(items, part, key)]
    if not isinstance(target, dict):
        raise ConfigError(f"--set {key}: nothing to descend into at {part!r}")
    section = cast(dict[str, Any], target)
    if section.get(part) is None:
        if not create:
            raise ConfigError(f"--set {key}: the config has no list {part!r} to index")
        section[part] = {}
    return section[part]


def _list_index(items: list[Any], part: str, key: str) -> int:
    if not part.isdigit() or int(part) >= len(items):
        raise ConfigError(f"--set {key}: {part!r} is not one of the items 0..{len(items) - 1}")
    return int(part)


def _lists_to_tuples(value: Any) -> Any:
    """YAML has lists; the frozen sections have tuples, and strict pydantic tells them apart."""
    if isinstance(value, Mapping):
        mapping = cast(Mapping[str, Any], value)
        return {key: _lists_to_tuples(item) for key, item in mapping.items()}
    if isinstance(value, list):
        return tuple(_lists_to_tuples(item) for item in cast(list[Any], value))
    return value


def _config_keys(loc: tuple[int | str, ...]) -> list[str]:
    """The location without the type names that pydantic adds for the members of a union."""
    return [str(part) for part in loc if not _is_union_label(str(part))]


def _explain(problem: Mapping[str, Any], loc: list[str]) -> str:
    """One sentence for one pydantic error."""
    key = ".".join(loc) or "config"
    if problem["type"] == "extra_forbidden":
        known = _known_keys(loc[:-1])
        guess = nearest(loc[-1], known)
        advice = f"did you mean {guess!r}?" if guess else f"known keys: {', '.join(known)}"
        return f"unknown key {key!r}; {advice}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if key == "config":
        return message
    return f"{key}: {message[0].lower()}{message[1:]}, not {_shortened(problem.get('input'))}"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _is_union_label(part: str) -> bool:
    return bool(
        re.match(r"^(str|int|constrained-int|tuple\[|literal\[|dict\[|mapping|\[key\])", part)
    )


def _known_keys(loc: Sequence[str]) -> list[str]:
    """The keys of the section at `loc`."""
    section: Any = RunConfig
    for part in loc:
        if part.isdigit():
            continue
        section = _SECTIONS.get(part, section)
    return sorted(section.model_fields)


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "instances": InstancesConfig,
    "model": ModelConfig,
    "engine": EngineConfig,
    "arms": ArmConfig,
    "store": StoreConfig,
    "scoring": ScoringConfig,
    "slurm": SlurmConfig,
    "report": SlurmReportConfig,
}
