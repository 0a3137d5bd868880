"""The whole ladder on the real vLLM: every kind of constraint, all nine tasks, a random checkpoint.

Twice: as a run, and with an adversary, a model whose every wish is against its constraint.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rel_batch import constraint_for, read_instances
from rel_batch.checkpoint import resolve_checkpoint
from rel_batch.config import EngineConfig, ModelConfig
from rel_batch.constraints import KINDS, Constraint, Kind
from rel_batch.constraints.dialects import is_grammar
from rel_batch.constraints.smiles_grammar import AROMATIC_SYMBOLS, ELEMENTS
from rel_batch.prompts import PromptRenderer, load_tokenizer
from rel_batch.records import Completion, Instance, PlannedRequest, Request
from rel_batch.store import RunFolder
from rel_batch.tasks import TASKS, task_for

# vLLM and torch warn about themselves, and here they run in this process, too.
pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

USED: tuple[Kind, ...] = tuple(
    kind for kind in KINDS if any(kind in task_for(name).constraint_kinds for name in TASKS)
)
# The shortest reply of REL-C4 (five motifs of six atoms) has 187 bytes, at worst a token each.
MAX_TOKENS = 256
MAX_MODEL_LEN = 4096
CONFIG = """
run: ladder
model: {{path: {checkpoint}}}
instances: {{limit: 1}}
engine: {{cpu_kv_cache_gib: 1}}
arms:
{arms}
"""


@dataclass(frozen=True)
class Row:
    """A completion with the constraint that its request had."""

    completion: Completion
    constraint: Constraint


def every_constrained_reply_is_admitted(rows: list[Row]) -> None:
    """What the ladder promises, of rows of all tasks and kinds."""
    assert {(r.completion.task, r.constraint.kind) for r in rows} == {
        (name, kind) for name in TASKS for kind in task_for(name).constraint_kinds
    }
    for row in rows:
        done, constraint = row.completion, row.constraint
        if constraint.kind == "none":
            continue
        where = (done.task, constraint.kind, done.status, done.error, done.reply)
        assert done.status in ("ok", "truncated"), where
        if done.status == "ok":
            assert done.constraint_held, where
            assert constraint.matches(done.reply), where
        else:
            assert constraint.admits_prefix(done.reply), where
            # A bounded list of taxa or options ends by itself; our matcher minds the budget.
            assert done.task in ("REL-C2", "REL-C3", "REL-C4"), where
            assert is_grammar(constraint), where


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> RunFolder:
    folder = tmp_path_factory.mktemp("ladder")
    arms = [f"  - {{name: {k}, constraint: {k}, max_tokens: {MAX_TOKENS}}}" for k in USED]
    config = folder / "ladder.yaml"
    config.write_text(CONFIG.format(checkpoint=tiny_llama, arms="\n".join(arms)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "rel_batch", "run", str(config)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    run = folder / "outputs" / "ladder"
    log = run / "logs" / "engine.log"
    assert done.returncode == 0, done.stderr + (log.read_text()[-3000:] if log.exists() else "")
    return RunFolder.open(run)


def test_a_random_model_keeps_every_constraint_of_every_task(finished: RunFolder) -> None:
    instances = {i.key: i for i in finished.iter_instances()}
    rows = [
        Row(c, constraint_for(instances[c.instance_key], c.constraint_kind))  # type: ignore[arg-type]
        for c in finished.iter_completions()
    ]
    assert len(rows) == len(list(finished.iter_requests()))
    every_constrained_reply_is_admitted(rows)


def test_replies_without_a_constraint_would_not_have_kept_one(finished: RunFolder) -> None:
    free = [c for c in finished.iter_completions() if c.constraint_kind == "none"]
    instances = {i.key: i for i in finished.iter_instances()}
    assert {c.task for c in free} == set(TASKS)
    assert not any(constraint_for(instances[c.instance_key]).matches(c.reply) for c in free)


# ── An adversary ────────────────────────────────────────────────────────────────────────────


def one_of_each_task() -> list[Instance]:
    return list({i.task: i for i in read_instances("bundled")}.values())


def liked_by_a_constraint(tokenizer: Any) -> frozenset[int]:
    """The tokens that a constraint may admit: those that write only characters of SMILES and of
    reference replies, and what ends a reply."""
    chars = set("".join((*ELEMENTS, *AROMATIC_SYMBOLS))) | set("0123456789@+-[]()=#$:/\\.%*")
    for instance in read_instances("bundled"):
        for kind in task_for(instance.task).constraint_kinds:
            chars.update(task_for(instance.task).reference_reply_for(instance, kind))
    texts = {token_id: tokenizer.decode([token_id]) for token_id in range(len(tokenizer))}
    liked = {token_id for token_id, text in texts.items() if text and set(text) <= chars}
    return frozenset({*liked, tokenizer.eos_token_id})


@pytest.fixture(scope="module")
def adversarial(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> list[Row]:
    """Replies of a random model that would choose any other token first."""
    pytest.importorskip("vllm", reason="no engine is installed")
    from rel_batch.engine.vllm import VllmEngine

    model = ModelConfig(path=str(tiny_llama))
    tokenizer = load_tokenizer(str(tiny_llama), revision=None, trust_remote_code=False)
    liked = liked_by_a_constraint(tokenizer)
    assert len(liked) < len(tokenizer) - 100, "some tokens are left to be drawn to"
    # The most that vLLM takes, either way.
    bias = {t: -100.0 if t in liked else 100.0 for t in range(len(tokenizer))}

    class Adversary(VllmEngine):
        def _params(self, call: Any) -> Any:
            params = super()._params(call)
            params.logit_bias = bias
            return params

    renderer = PromptRenderer(tokenizer, "auto")
    requests: dict[str, Request] = {}
    for request in adversarial_requests(renderer):
        requests[request.planned.key] = request
    with Adversary(
        resolve_checkpoint(model),
        model,
        EngineConfig(cpu_kv_cache_gib=1),
        max_model_len=MAX_MODEL_LEN,
        seeded=True,
        seed=0,
        log_file=tmp_path_factory.mktemp("adversary") / "engine.log",
    ) as engine:
        done = list(engine.generate(requests.values()))
    assert len(done) == len(requests)
    return [Row(c, requests[c.request_key].constraint) for c in done]


def adversarial_requests(renderer: PromptRenderer) -> Iterator[Request]:
    for instance in one_of_each_task():
        (prompt,) = renderer.render([instance.question])
        for number, kind in enumerate(task_for(instance.task).constraint_kinds):
            constraint = constraint_for(instance, kind)
            planned = PlannedRequest(
                key=f"{instance.key}/{kind}",
                instance_key=instance.key,
                task=instance.task,
                arm=kind,
                sample=0,
                seed=number,
                chunk=0,
                num_prompt_tokens=len(prompt),
                max_tokens=MAX_TOKENS,
                constraint_kind=kind,
                constraint_digest=constraint.digest,
            )
            yield Request(planned, prompt, constraint, temperature=1.0, top_p=1.0)


def test_an_adversary_writes_no_token_that_a_constraint_likes(
    adversarial: list[Row], tiny_llama: Path
) -> None:
    liked = liked_by_a_constraint(
        load_tokenizer(str(tiny_llama), revision=None, trust_remote_code=False)
    )
    free = [r.completion for r in adversarial if r.constraint.kind == "none"]
    assert {c.task for c in free} == set(TASKS)
    assert {c.finish_reason for c in free} == {"length"}
    assert not any(liked & set(c.output_token_ids) for c in free)


def test_an_adversary_keeps_every_constraint_of_every_task(adversarial: list[Row]) -> None:
    every_constrained_reply_is_admitted(adversarial)
