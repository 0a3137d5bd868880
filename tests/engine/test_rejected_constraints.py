"""A constraint that does not compile costs its own row, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no engine is installed")
pytest.importorskip("xgrammar", reason="no engine is installed")

from rel_batch import read_instances
from rel_batch.config import validate_config
from rel_batch.constraints import Constraint, Kind, texts
from rel_batch.engine.fake import FakeEngine, oracle_replies
from rel_batch.launch.local import run_locally
from rel_batch.launch.setup import Setup
from rel_batch.records import Completion, Instance
from rel_batch.tasks.isomer_sets import IsomerSetTask

# vLLM and torch warn about themselves, and here they run in this process, too.
pytestmark = pytest.mark.filterwarnings("ignore")

HUGE = Constraint("format", texts(tuple(f"{i}" + "x" * 100_000 for i in range(100))))  # 10 MB


class Silent:
    def say(self, message: str) -> None: ...

    def begin(self, total: int, finished: int) -> None: ...

    def completed(self, completion: Completion) -> None: ...

    def scored(self, tally: object) -> None: ...

    def end(self) -> None: ...


def load_oracle(setup: Setup, *_: object) -> FakeEngine:
    return FakeEngine(oracle_replies(setup.instances))


def test_a_grammar_of_10_mb_is_a_rejected_row_and_the_rest_of_the_run_goes_on(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's own plan, tokenizer and compilation; only the model is not there."""
    hostile = next(i for i in read_instances("bundled") if i.task == "REL-C1")
    own = IsomerSetTask.constraint

    def constraint(self: IsomerSetTask, instance: Instance, kind: Kind) -> Constraint:
        return HUGE if instance.key == hostile.key else own(self, instance, kind)

    monkeypatch.setattr(IsomerSetTask, "constraint", constraint)
    monkeypatch.setattr("rel_batch.launch.joining.load_engine", load_oracle)
    settings = {
        "run": "rejected",
        "output_dir": str(tmp_path),
        "model": {"path": str(tiny_llama)},
        "instances": {"tasks": ["REL-C1", "REL-A1"]},
    }
    outcome = run_locally(validate_config(settings, "test"), Silent())
    assert outcome.num_missing == 0
    rows = {c.instance_key: c for c in outcome.run.iter_completions()}
    refused = rows.pop(hostile.key)
    assert (refused.status, refused.reply) == ("constraint_rejected", "")
    assert refused.error is not None
    assert "more than 2,000,000 characters" in refused.error
    assert len(rows) > 10
    assert {row.status for row in rows.values()} == {"ok"}
    assert {row.backend for row in rows.values()} == {"xgrammar"}
