"""Runs for tests of workers: the bundled instances, the fake engine, no process but this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rel_batch.config import RunConfig, validate_config
from rel_batch.engine import Engine
from rel_batch.engine.fake import FakeEngine, FakeReply, Replies
from rel_batch.launch.local import _setup
from rel_batch.launch.prepare import prepare
from rel_batch.launch.setup import Setup
from rel_batch.plan import Materialiser
from rel_batch.records import Completion, Request
from rel_batch.store import RunFolder
from rel_batch.store.claims import Claims
from rel_batch.worker import FailureLimit, Outfit, Stop, Worker, WorkerSettings

REMOTE = {"machine": "another machine"}


def reply(request: Request) -> FakeReply:
    return FakeReply(f"reply to {request.planned.key}")


@dataclass
class Watched:
    """A progress that remembers what it was told."""

    said: list[str] = field(default_factory=list)
    rows: list[Completion] = field(default_factory=list)

    def say(self, message: str) -> None:
        self.said.append(message)

    def begin(self, total: int, finished: int) -> None: ...

    def completed(self, completion: Completion) -> None:
        self.rows.append(completion)

    def scored(self, tally: Any) -> None: ...

    def end(self) -> None: ...


def config_of(folder: Path, **changes: Any) -> RunConfig:
    """A run below `folder`: every bundled instance once, without a constraint."""
    settings: dict[str, Any] = {
        "run": "run",
        "output_dir": str(folder),
        "model": {"path": "none"},
        "engine": {"kind": "fake"},
        "arms": [{"name": "free", "constraint": "none"}],
        **changes,
    }
    return validate_config(settings, "test")


def created(config: RunConfig) -> Setup:
    """The run of a config, created or resumed."""
    prepared = prepare(config)
    run = RunFolder.create_or_resume(
        config.folder, prepared.manifest({}), prepared.instances.values(), prepared.plan.requests
    )
    return _setup(prepared, run)


def worker_of(
    setup: Setup,
    load: Callable[[], Engine] | Replies = reply,
    *,
    claims: Claims | None = None,
    stop: Stop | None = None,
    loads_engine: bool = False,
    **options: Any,
) -> Worker:
    """A worker whose engine gives the replies of `load`, or is what `load` gives."""
    store = setup.config.store
    return Worker(
        setup.run,
        setup.missing,
        claims or Claims(setup.run.path, timeout_s=store.claim_timeout_s),
        Outfit(
            Materialiser(
                setup.instances, setup.config.arms, setup.renderer, setup.compile_constraint
            ),
            setup.max_model_len,
            load if loads_engine else partial(FakeEngine, load),  # type: ignore[arg-type]
        ),
        WorkerSettings(store, first_pause_s=0.0),
        stop or Stop(),
        **options,
    )


def keys(rows: Sequence[Completion]) -> list[str]:
    return sorted(row.request_key for row in rows)


def planned(setup: Setup) -> list[str]:
    return sorted(request.key for request in setup.run.iter_requests())


__all__ = ["FailureLimit", "Stop"]
