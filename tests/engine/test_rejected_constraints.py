"""A constraint that does not compile costs its own row, and no other."""

from __future__ import annotations

import json
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


def _isomers(name: str, given: list[str], missing: list[str]) -> str:
    """A record of REL-C3 as it is released."""
    lines = "\n".join(f"{number}. {smiles}" for number, smiles in enumerate(given, start=1))
    question = (
        "Given the following list of constitutional isomers, complete the set by identifying the "
        f"missing constitutional isomers.\n\nGiven SMILES:\n{lines}\n\nReturn the missing "
        "molecules as SMILES, one per line, each wrapped exactly like:\n"
        "<smiles>YOUR_SMILES_HERE</smiles>\nNo explanation."
    )
    answer = {"molecules": given, "missing_smiles": missing}
    head = {"id": name, "domain": "chemistry", "task": "REL-C3", "question": question}
    return json.dumps({**head, "answer": answer, "metadata": {}}) + "\n"


def test_a_formula_without_an_isomer_is_a_rejected_row_with_its_reason_and_the_run_goes_on(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "REL-C3.jsonl"
    source.write_text(
        _isomers("one-left", ["CCO"], ["COC"])
        + _isomers("two-formulas", ["CCO", "CC"], ["COC"])
        + _isomers("no-isomer", ["[CH3]"], ["C"])
        + _isomers("two-left", ["CCCO"], ["CC(C)O", "CCOC"]),
        encoding="utf-8",
    )
    monkeypatch.setattr("rel_batch.launch.joining.load_engine", load_oracle)
    settings = {
        "run": "impossible",
        "output_dir": str(tmp_path),
        "model": {"path": str(tiny_llama)},
        "instances": {"source": str(source)},
        "arms": [{"name": "assisted", "constraint": "formula"}],
    }
    outcome = run_locally(validate_config(settings, "test"), Silent())
    assert outcome.num_missing == 0
    names = {instance.key: instance.id for instance in outcome.run.read_instances()}
    rows = {names[c.instance_key]: c for c in outcome.run.iter_completions()}
    assert {name: row.status for name, row in rows.items()} == {
        "one-left": "ok",
        "two-formulas": "constraint_rejected",
        "no-isomer": "constraint_rejected",
        "two-left": "ok",
    }
    assert "no one formula, but C2H6, C2H6O" in str(rows["two-formulas"].error)
    assert "no molecule has the formula CH3" in str(rows["no-isomer"].error)
    assert (rows["one-left"].reply, rows["one-left"].backend) == ("<smiles>COC</smiles>", "machine")
