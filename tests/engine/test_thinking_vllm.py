"""Thoughts and measuring on the real vLLM: made-up families on one tiny checkpoint and one engine.

The checkpoint's weights are random and its markers are loud, so that some thoughts are closed by
the model and others by their budget. What the engine says of probabilities is held against the same
checkpoint under transformers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_up_templates as templates
import pytest

from rel_batch.checkpoint import resolve_checkpoint
from rel_batch.config import EngineConfig, ModelConfig
from rel_batch.constraints import Chars, Constraint, Repeat, texts
from rel_batch.demo import build_once
from rel_batch.engine import Engine
from rel_batch.prompts import PromptRenderer, load_tokenizer
from rel_batch.records import Completion, PlannedRequest, Request
from rel_batch.thoughts import Mode, OnBudget

# vLLM and torch warn about themselves, and here they run in this process.
pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

# vLLM's and transformers' log-probability of a token differ by up to 0.006 on a CPU with
# avx512_bf16. A token or a position that is mistaken for another differs by far more.
ROUNDING = 0.02
MAX_MODEL_LEN = 2048
BUDGET = 40
LABELS = tuple("01234567")
DIGIT = Constraint("format", texts(LABELS))
TAG = Constraint("format", texts(("<Yes>", "<No>")))
LETTERS = Constraint("format", Repeat(Chars("ab"), 1, None))
FREE = Constraint("none")

numbers = itertools.count()


@pytest.fixture(scope="module")
def checkpoint(tiny_chat: Path) -> Path:
    recipe = hashlib.sha256(Path(templates.__file__).read_bytes()).hexdigest()[:8]
    return build_once(
        tiny_chat.parent / f"many_markers-{recipe}",
        lambda folder: templates.build_many_markers(folder, tiny_chat),
    )


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Any:
    return load_tokenizer(str(checkpoint), revision=None, trust_remote_code=False)


@pytest.fixture(scope="module")
def engine(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    pytest.importorskip("vllm", reason="no engine is installed")
    from rel_batch.engine.vllm import VllmEngine

    model = ModelConfig(path=str(checkpoint))
    with VllmEngine(
        resolve_checkpoint(model),
        model,
        EngineConfig(cpu_kv_cache_gib=1),
        max_model_len=MAX_MODEL_LEN,
        seeded=True,
        seed=0,
        log_file=tmp_path_factory.mktemp("engine") / "engine.log",
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


def requests(
    tokenizer: Any,
    template: str | None,
    mode: Mode,
    constraint: Constraint,
    *,
    count: int = 12,
    on_budget: OnBudget = "force_close",
    temperature: float = 1.0,
    max_tokens: int = 12,
    question: str = "Complete the matrix",
    **changes: Any,
) -> list[Request]:
    tokenizer.chat_template = template
    made = PromptRenderer(tokenizer, "auto")
    think = mode == "native"
    (prompt,) = made.render([question], think=think)
    thinking = made.thinking(
        mode,
        budget=BUDGET,
        on_budget=on_budget,
        answers_at_once=constraint.expression is not None,
        arm="a",
    )
    return [
        Request(
            PlannedRequest(
                key=f"r{next(numbers)}",
                instance_key="i",
                task="REL-A1",
                arm="a",
                sample=sample,
                seed=sample if temperature else None,
                chunk=0,
                num_prompt_tokens=len(prompt),
                max_tokens=max_tokens,
                constraint_kind=constraint.kind,
                constraint_digest=constraint.digest,
            ),
            prompt,
            constraint,
            temperature=temperature,
            top_p=1.0,
            thinking=thinking,
            markers=made.markers,
            thought_opened=made.thought_state(think=think) == "open",
            **changes,
        )
        for sample in range(count)
    ]


def run(engine: Engine, asked: list[Request]) -> list[Completion]:
    done = list(engine.generate(asked))
    assert {c.request_key for c in done} == {r.planned.key for r in asked}
    return done


def starts_with(token_ids: tuple[int, ...], beginning: tuple[int, ...]) -> bool:
    return token_ids[: len(beginning)] == beginning


@pytest.mark.parametrize(
    ("template", "mode"),
    [
        (templates.QWEN3, "native"),
        (templates.DEEPSEEK_R1, "native"),
        (templates.GPT_OSS, "native"),
        (templates.QWEN3, "prompted"),
        (templates.GEMMA, "prompted"),
        (templates.GEMMA, "none"),
        (templates.QWEN3, "none"),
    ],
)
def test_whatever_was_thought_the_reply_keeps_its_constraint(
    engine: Engine, tokenizer: Any, template: str, mode: Mode
) -> None:
    asked = requests(tokenizer, template, mode, DIGIT)
    thinking = asked[0].thinking
    for done in run(engine, asked):
        assert (done.status, done.constraint_held, done.error) == ("ok", True, None)
        assert done.reply in LABELS
        if thinking is None:
            assert (done.thought, done.num_thought_tokens) == ("", 0)
            continue
        assert 0 < done.num_thought_tokens <= BUDGET
        assert done.num_output_tokens > done.num_thought_tokens
        assert starts_with(done.output_token_ids, thinking.opening)
        # What closes the thought stands right before the reply.
        num_reply = done.num_output_tokens - done.num_thought_tokens
        before = done.output_token_ids[: len(done.output_token_ids) - num_reply]
        closings = (thinking.closing, thinking.forced_closing)
        assert any(before[len(before) - len(closing) :] == closing for closing in closings)
        assert before.count(thinking.closing[-1]) > 0


def test_a_thought_is_ended_by_the_model_or_by_its_budget(engine: Engine, tokenizer: Any) -> None:
    asked = requests(
        tokenizer, templates.DEEPSEEK_R1, "native", DIGIT, count=40, on_budget="truncate"
    )
    done = run(engine, asked)
    ended = [c for c in done if c.status == "ok"]
    cut = [c for c in done if c.status == "truncated_thinking"]
    assert ended
    assert cut
    assert len(ended) + len(cut) == len(done)
    assert all(c.reply in LABELS and c.num_thought_tokens <= BUDGET for c in ended)
    assert all(c.num_thought_tokens == BUDGET and c.reply == "" for c in cut)
    assert all(c.constraint_held is None and c.finish_reason == "length" for c in cut)


def test_thoughts_of_samples_differ(engine: Engine, tokenizer: Any) -> None:
    done = run(engine, requests(tokenizer, templates.QWEN3, "native", DIGIT))
    assert len({c.thought for c in done}) > len(done) // 2


def test_a_free_reply_holds_no_thought(engine: Engine, tokenizer: Any) -> None:
    asked = requests(tokenizer, templates.DEEPSEEK_R1, "none", FREE, count=40, max_tokens=BUDGET)
    done = run(engine, asked)
    assert {c.status for c in done} >= {"truncated", "truncated_thinking"}
    for c in done:
        assert "</think>" not in c.reply
        assert (c.status == "truncated_thinking") <= (c.reply == "")
        assert len(c.output_token_ids) == c.num_output_tokens


def test_the_reply_finds_its_prompt_and_thought_in_the_cache(
    engine: Engine, tokenizer: Any
) -> None:
    question = "Complete the progressive matrix. " * 40
    (asked,) = requests(
        tokenizer, templates.QWEN3, "native", DIGIT, count=1, question=question, temperature=0.0
    )
    calls: list[tuple[int, int]] = []
    core = engine._llm.llm_engine  # type: ignore[attr-defined]
    step = core.step

    def watched() -> Any:
        outputs = step()
        calls.extend((len(o.prompt_token_ids), o.num_cached_tokens) for o in outputs if o.finished)
        return outputs

    core.step = watched
    try:
        run(engine, [asked])
    finally:
        core.step = step
    (_, _), (num_tokens, num_cached) = calls
    assert num_tokens > len(asked.prompt_token_ids)
    # All but the last, incomplete block of the cache.
    assert num_cached >= num_tokens - 2 * 128


# --- Measured against transformers ----------------------------------------------------------------


def logprobs_of(model: Any, token_ids: tuple[int, ...]) -> Any:
    """float[tokens, vocabulary]: row t is the distribution of the token after the first t + 1."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([token_ids])).logits[0].log_softmax(-1)


@pytest.mark.parametrize("constraint", [DIGIT, TAG, LETTERS])
@pytest.mark.parametrize(
    ("template", "mode"), [(templates.GEMMA, "none"), (templates.QWEN3, "native")]
)
def test_each_token_has_the_models_own_probability_and_rank(
    engine: Engine, tokenizer: Any, model: Any, constraint: Constraint, template: str, mode: Mode
) -> None:
    asked = requests(
        tokenizer,
        template,
        mode,
        constraint,
        count=1,
        temperature=0.0,
        measure_distortion=True,
    )
    (done,) = run(engine, asked)
    assert done.token_logprobs is not None
    assert done.token_ranks is not None
    num_reply = done.num_output_tokens - done.num_thought_tokens
    assert len(done.token_logprobs) == len(done.token_ranks) == num_reply
    token_ids = asked[0].prompt_token_ids + done.output_token_ids
    expected = logprobs_of(model, token_ids)
    cost = 0.0
    for at in range(num_reply):
        row = expected[len(token_ids) - num_reply + at - 1]
        own = row[token_ids[len(token_ids) - num_reply + at]]
        assert done.token_logprobs[at] == pytest.approx(own.item(), abs=ROUNDING)
        # Tokens that are next to equally likely may stand in either order.
        surely_above, maybe_above = (
            int((row > own + ROUNDING).sum()),
            int((row > own - ROUNDING).sum()),
        )
        assert 1 + surely_above <= done.token_ranks[at] <= max(maybe_above, 1)
        cost += (row.max() - own).item()
    assert done.logprob_cost == pytest.approx(cost, rel=0.02, abs=ROUNDING)
    overruled = sum(rank > 1 for rank in done.token_ranks)
    assert done.overruled_share == overruled / num_reply
    # A random model has other first choices than these texts.
    assert overruled > 0


@pytest.mark.parametrize("constraint", [DIGIT, TAG])
def test_options_are_as_likely_as_their_tokens(
    engine: Engine, tokenizer: Any, model: Any, constraint: Constraint
) -> None:
    tokenizer.chat_template = templates.GEMMA
    made = PromptRenderer(tokenizer, "auto")
    options = LABELS if constraint == DIGIT else ("<Yes>", "<No>")
    with_ids = tuple((option, made.continuation_ids(option)) for option in options)
    asked = requests(
        tokenizer,
        templates.GEMMA,
        "none",
        constraint,
        count=1,
        temperature=0.0,
        options=with_ids,
        decoding="likelihood",
    )
    (done,) = run(engine, asked)
    assert (done.status, done.constraint_held, done.num_output_tokens) == ("ok", True, 0)
    assert done.option_logprobs is not None
    prompt = asked[0].prompt_token_ids
    for option, ids in with_ids:
        rows = logprobs_of(model, prompt + ids)
        expected = sum(rows[len(prompt) + at - 1][token].item() for at, token in enumerate(ids))
        assert done.option_logprobs[option] == pytest.approx(expected, abs=ROUNDING * len(ids))
    assert done.reply == max(options, key=lambda option: done.option_logprobs[option])


def test_a_label_of_one_token_is_ranked_first_where_it_is_decoded_greedily(
    engine: Engine, tokenizer: Any
) -> None:
    tokenizer.chat_template = templates.GEMMA
    made = PromptRenderer(tokenizer, "auto")
    options = tuple((label, made.continuation_ids(label)) for label in LABELS)
    assert all(len(ids) == 1 for _, ids in options)
    for question in ("Complete the matrix", "row 1: (1, 2, 3)", "Answer set"):
        asked = [
            *requests(
                tokenizer,
                templates.GEMMA,
                "none",
                DIGIT,
                count=1,
                temperature=0.0,
                question=question,
                options=options,
                measure_distortion=True,
            ),
            *requests(
                tokenizer,
                templates.GEMMA,
                "none",
                DIGIT,
                count=1,
                temperature=0.0,
                question=question,
                options=options,
                decoding="likelihood",
            ),
        ]
        decoded, ranked = sorted(run(engine, asked), key=lambda c: int(c.request_key[1:]))
        assert decoded.reply == ranked.reply
        assert decoded.option_logprobs == pytest.approx(ranked.option_logprobs, abs=1e-4)


def test_a_reply_that_fills_the_context_is_measured_to_its_last_token(
    engine: Engine, tokenizer: Any
) -> None:
    max_tokens = 8
    (asked,) = requests(
        tokenizer,
        templates.GEMMA,
        "none",
        LETTERS,
        count=1,
        temperature=0.0,
        max_tokens=max_tokens,
        measure_distortion=True,
    )
    filler = MAX_MODEL_LEN - max_tokens - 1 - len(asked.prompt_token_ids)
    prompt = asked.prompt_token_ids[:1] * filler + asked.prompt_token_ids
    (done,) = run(engine, [dataclasses.replace(asked, prompt_token_ids=prompt)])
    assert done.error is None
    assert done.token_ranks is not None
    assert len(done.token_ranks) == done.num_output_tokens


def test_a_request_that_vllm_refuses_is_a_row_and_the_others_go_on(
    engine: Engine, tokenizer: Any
) -> None:
    # No config has such a temperature; vLLM may come to refuse what one has.
    asked = [
        *requests(tokenizer, templates.GEMMA, "none", DIGIT, count=1, temperature=3.0),
        *requests(tokenizer, templates.GEMMA, "none", DIGIT, count=1),
    ]
    refused, answered = sorted(run(engine, asked), key=lambda c: int(c.request_key[1:]))
    assert refused.status == "engine_error"
    assert refused.error is not None
    assert "temperature must be in [0, 2]" in refused.error
    assert answered.status == "ok"
