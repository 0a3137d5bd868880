"""Where planning takes long, workers start their engines meanwhile and wait for the plan."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from workers import Watched, config_of, reply

from rel_batch.checkpoint import Checkpoint
from rel_batch.engine.fake import FakeEngine
from rel_batch.errors import DataError, EngineError
from rel_batch.launch import engines, local
from rel_batch.launch.engines import EarlyEngine
from rel_batch.launch.prepare import Inputs, prepare, read_inputs
from rel_batch.store import RunFolder


def always(config: object, inputs: object) -> bool:
    del config, inputs
    return True


def test_workers_that_are_started_before_the_plan_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_takes_long_to_plan", always)
    config, progress = config_of(tmp_path), Watched()
    outcome = local.run_locally(config, progress)
    assert outcome.num_missing == 0
    assert len(list(outcome.run.iter_completions())) == len(list(outcome.run.iter_requests()))
    said = (config.folder / "logs" / "worker-0.log").read_text(encoding="utf-8")
    assert "error" not in said
    assert progress.said.index("starting engines, and planning meanwhile") == 0


def test_an_error_of_the_plan_ends_the_workers_and_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_takes_long_to_plan", always)

    def fail(*_: object) -> Any:
        raise DataError("the plan is empty")

    monkeypatch.setattr(local, "prepare", fail)
    config = config_of(tmp_path)
    with pytest.raises(DataError, match="the plan is empty"):
        local.run_locally(config, Watched())
    assert [path.name for path in config.folder.iterdir()] == ["logs"]
    assert not children()
    monkeypatch.undo()
    assert local.run_locally(config, Watched()).num_missing == 0


def children() -> list[str]:
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pids]
    return [command for command in commands if "join" in command.split("\0")]


def test_a_run_that_is_there_is_not_started_early(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine={"kind": "vllm"})
    inputs = read_inputs(config_of(tmp_path))
    many = Inputs(
        {f"{key}{n}": i for key, i in inputs.instances.items() for n in range(2000)}, (), None, None
    )
    assert not local._takes_long_to_plan(config, inputs)
    assert local._takes_long_to_plan(config, many)
    fake = config_of(tmp_path)
    assert not local._takes_long_to_plan(fake, many)
    local.run_locally(fake, Watched())
    assert not local._takes_long_to_plan(config, many)


@pytest.mark.parametrize(
    "arms",
    [
        [{"name": "free", "constraint": "none"}],
        [{"name": "json", "constraint": "json", "max_tokens": 9}],
        [{"name": "shots", "examples": 2, "system_prompt": "Be brief."}],
        [{"name": "thought", "thinking": "prompted", "constraint": "none"}],
        [{"name": "short", "max_tokens": 4}, {"name": "long", "max_tokens": 4000}],
    ],
    ids=lambda arms: arms[0]["name"],
)
def test_the_context_that_is_guessed_holds_every_request(
    tmp_path: Path, arms: list[dict[str, Any]]
) -> None:
    config = config_of(tmp_path, arms=arms)
    inputs = read_inputs(config)
    # The fake engine's tokens are bytes: none are shorter.
    assert prepare(config, inputs).plan.longest <= inputs.most_context_tokens(config)


def test_the_context_that_is_guessed_is_none_that_the_model_was_not_made_for(
    tmp_path: Path,
) -> None:
    read = read_inputs(config_of(tmp_path))
    inputs = Inputs(read.instances, (), None, Checkpoint("a", tmp_path, "c", 700))
    assert inputs.most_context_tokens(config_of(tmp_path)) == 700
    own = config_of(tmp_path, model={"path": "none", "max_model_len": 512})
    assert inputs.most_context_tokens(own) == 512


@dataclass
class Closing(FakeEngine):
    closed: list[bool] = field(default_factory=list[bool])

    def __post_init__(self) -> None:
        super().__init__(reply)

    def close(self) -> None:
        self.closed.append(True)


@pytest.mark.parametrize(
    ("commit", "context", "taken", "why"),
    [
        ("c", 900, True, "what it was started for"),
        ("c", 1000, True, "no more than it has"),
        ("c", 1001, False, "its context is too short"),
        ("d", 900, False, "the run is of another checkpoint"),
    ],
)
def test_an_early_engine_is_taken_if_it_is_one_for_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commit: str,
    context: int,
    taken: bool,
    why: str,
) -> None:
    engine = Closing()
    monkeypatch.setattr(engines, "resolve_checkpoint", lambda _: Checkpoint("a", tmp_path, "c", 1))
    monkeypatch.setattr(engines, "_start", lambda *_: engine)
    config = config_of(tmp_path, engine={"kind": "vllm"})
    with EarlyEngine(config, 1000, tmp_path / "log", str) as early:
        found = early.take(Checkpoint("a", tmp_path, commit, 1), context)
        assert (found is engine) == taken, why
        assert early.take(Checkpoint("a", tmp_path, commit, 1), context) is None, "once"
    assert bool(engine.closed) != taken, "nobody else would end it"


def test_an_engine_that_cannot_start_early_is_left_to_be_started_after_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise EngineError("no memory for so long a context")

    monkeypatch.setattr(engines, "resolve_checkpoint", lambda _: Checkpoint("a", tmp_path, "c", 1))
    monkeypatch.setattr(engines, "_start", fail)
    said: list[str] = []
    config = config_of(tmp_path, engine={"kind": "vllm"})
    with EarlyEngine(config, 1000, tmp_path / "log", said.append) as early:
        assert early.take(Checkpoint("a", tmp_path, "c", 1), 1) is None
    assert said == [
        "no memory for so long a context; the engine is started again when the run is planned"
    ]


def test_an_early_engine_that_nobody_takes_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Closing()
    monkeypatch.setattr(engines, "resolve_checkpoint", lambda _: Checkpoint("a", tmp_path, "c", 1))
    monkeypatch.setattr(engines, "_start", lambda *_: engine)
    with EarlyEngine(config_of(tmp_path, engine={"kind": "vllm"}), 9, tmp_path / "log", str):
        pass
    assert engine.closed


def test_a_run_folder_that_holds_only_logs_becomes_a_run(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (config.folder / "logs").mkdir(parents=True)
    run = local.run_locally(config, Watched()).run
    assert RunFolder.open(run.path).manifest
