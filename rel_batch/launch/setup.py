"""What a worker needs of a run, read from its folder: the run was planned once, elsewhere.

    setup = load_setup(RunFolder.open(path))

Nothing is planned again; the checkpoint and the chat template must be those that the run was
planned with. Relative paths in a run's config are relative to where it was created.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rel_batch.checkpoint import Checkpoint, resolve_checkpoint
from rel_batch.config import RunConfig, validate_config
from rel_batch.constraints import Constraint
from rel_batch.errors import StoreError
from rel_batch.plan import CompileConstraint, compile_nothing
from rel_batch.prompts import ByteTokenizer, PromptRenderer, load_tokenizer
from rel_batch.records import Instance
from rel_batch.store import RunFolder
from rel_batch.store.chunks import ChunkIndex, ChunkSize, count_finished, read_chunk_index
from rel_batch.store.manifest import MANIFEST, render_differences
from rel_batch.tasks import task_for


@dataclass(frozen=True)
class Setup:
    """A run that a worker can work on.

    Attributes:
        finished: how many requests of each chunk had a row when this was read; counted once, since
            of a million it takes seconds.
        checkpoint: None for the fake engine.
        max_model_len: tokens of context that the engine gets.
        compile_constraint: says how a constraint compiles for the run's backend and tokenizer.
    """

    run: RunFolder
    config: RunConfig
    instances: Mapping[str, Instance]
    index: ChunkIndex
    finished: Mapping[int, int]
    checkpoint: Checkpoint | None
    renderer: PromptRenderer
    max_model_len: int
    compile_constraint: CompileConstraint

    @property
    def missing(self) -> dict[int, ChunkSize]:
        """The chunks that had requests without a row."""
        return {
            chunk: size
            for chunk, size in self.index.sizes.items()
            if self.finished.get(chunk, 0) < size.num_requests
        }

    @property
    def num_missing(self) -> int:
        """How many planned requests had no row. Those of arms that came since are not among them,
        as they are none of this worker's."""
        return sum(
            size.num_requests - self.finished.get(chunk, 0) for chunk, size in self.missing.items()
        )

    def counted_again(self) -> Setup:
        """The same with the rows that there are now. Raises StoreError."""
        return dataclasses.replace(self, finished=count_finished(self.run))

    def constraint_of(self, task: str, arm: str, instance_key: str) -> Constraint:
        """The constraint of a planned request."""
        found = next(each for each in self.config.arms if each.name == arm)
        return task_for(task).constraint(self.instances[instance_key], found.constraint)

    def located(self, path: str) -> Path:
        """A path of the config, from wherever this process runs."""
        return located(path, self.run.manifest)


def constraint_compiler(config: RunConfig, tokenizer: Any) -> CompileConstraint:
    """What compiles the constraints of a run."""
    if config.engine.kind == "fake":
        return compile_nothing
    from rel_batch.engine.structured_outputs import ConstraintCompiler

    return ConstraintCompiler(config.engine.backend, tokenizer)


def located(path: str, manifest: Mapping[str, Any]) -> Path:
    """A path of a run's config: where the run was created, else from here."""
    there = Path(manifest.get("working_folder", ".")) / Path(path).expanduser()
    return there if there.exists() else Path(path).expanduser()


def load_setup(run: RunFolder, settings: Mapping[str, Any] | None = None) -> Setup:
    """Read what the run folder says, and load the tokenizer.

    `settings` is the config to use in place of the stored one; both are of the same run.
    Raises StoreError where the run needs another checkpoint or template than is here, EngineError
    where the checkpoint is not here.
    """
    manifest = run.manifest
    config = validate_config(settings or manifest.get("config", {}), str(run.path / MANIFEST))
    checkpoint: Checkpoint | None = None
    tokenizer: Any = ByteTokenizer()
    if config.engine.kind == "vllm":
        checkpoint = resolve_checkpoint(_recorded_model(config, manifest))
        own = config.model.tokenizer
        tokenizer = load_tokenizer(
            str(checkpoint.path) if own is None else _found(own, manifest),
            revision=None,
            trust_remote_code=config.model.trust_remote_code,
        )
    renderer = PromptRenderer(tokenizer, config.chat_template, config.model.thinks)
    _check(run, checkpoint, renderer)
    return Setup(
        run=run,
        config=config,
        instances={instance.key: instance for instance in run.iter_instances()},
        index=read_chunk_index(run),
        finished=count_finished(run),
        checkpoint=checkpoint,
        renderer=renderer,
        max_model_len=manifest["max_model_len"],
        compile_constraint=constraint_compiler(config, tokenizer),
    )


def _found(path: str, manifest: Mapping[str, Any]) -> str:
    found = located(path, manifest)
    return str(found) if found.exists() else path


def _recorded_model(config: RunConfig, manifest: Mapping[str, Any]) -> Any:
    """The checkpoint that the run was planned with: its folder, or the commit of the Hub's."""
    folder = manifest.get("checkpoint")
    if folder is not None and Path(folder).is_dir():
        return config.model.model_copy(update={"path": folder, "revision": None})
    found = located(config.model.path, manifest)
    if found.exists():
        return config.model.model_copy(update={"path": str(found)})
    commit = manifest["identity"]["model"]["commit"]
    return config.model.model_copy(update={"revision": commit})


def _check(run: RunFolder, checkpoint: Checkpoint | None, renderer: PromptRenderer) -> None:
    identity = run.manifest["identity"]
    here = {"template": renderer.template_digest}
    stored = {"template": identity["template"]}
    if checkpoint is not None:
        here["model.commit"] = checkpoint.commit
        stored["model.commit"] = identity["model"]["commit"]
    differences = [
        (name, str(stored[name]), here[name]) for name in here if stored[name] != here[name]
    ]
    if differences:
        raise StoreError(
            f"{run.path} was planned with another checkpoint than is here. What differs:\n"
            f"{render_differences(differences)}",
            hint="work on it where its own checkpoint is; nothing was changed",
        )
