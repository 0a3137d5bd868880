"""A thought is opened, ended and closed by what its template's family does, and never guessed.

The states are read from rendered ids; what a request then asks its engine, and what becomes of each
answer, is tested on the calls themselves, without an engine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import made_up_templates as templates
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rel_batch.config import ArmConfig
from rel_batch.constraints import Constraint, texts
from rel_batch.engine.calls import Answer, Call
from rel_batch.engine.fake import FakeEngine, FakeReply, scripted_replies
from rel_batch.engine.steps import request_steps
from rel_batch.errors import ConfigError, EngineError
from rel_batch.instances import read_instances
from rel_batch.judge import score_reply
from rel_batch.plan import Materialiser, compile_nothing, plan_requests
from rel_batch.prompts import PROMPTED_INSTRUCTION, ByteTokenizer, PromptRenderer
from rel_batch.records import Completion, PlannedRequest, Request
from rel_batch.tasks.answer import answer_of
from rel_batch.thoughts import Markers, Mode, OnBudget, Thinking, split_thought, thought_state

jinja2 = pytest.importorskip("jinja2", reason="templates need it")

# One id for each marker, from 300; every other character is its own code.
MARKERS = (*templates.SPECIAL, *templates.ADDED)
EOS = 299


class MarkerTokenizer:
    """Renders a template as transformers does; one id a marker, one a character."""

    def __init__(self, template: str | None, *, plain_markers: bool = False) -> None:
        self.bos_token_id = 1
        self.chat_template = template
        self._markers = () if plain_markers else MARKERS

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> dict[str, Any]:
        assert not add_special_tokens
        return {"input_ids": [self._encode(item) for item in text]}

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, **kwargs: Any) -> str:
        assert not tokenize
        template = jinja2.Environment().from_string(self.chat_template)
        return template.render(messages=conversation, bos_token="\x01", **kwargs)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = []
        while text:
            marker = next((m for m in self._markers if text.startswith(m)), None)
            ids.append(300 + MARKERS.index(marker) if marker else ord(text[0]))
            text = text[len(marker) if marker else 1 :]
        return ids


def ids(text: str) -> tuple[int, ...]:
    """`text` as ids; "§" is the end of the sequence."""
    encoded = MarkerTokenizer(None)([text], add_special_tokens=False)["input_ids"][0]
    return tuple(EOS if i == ord("§") else i for i in encoded)


def decode(token_ids: Sequence[int]) -> str:
    """As a tokenizer does that leaves special tokens out, and `<think>` in."""
    special = {300 + at for at in range(len(templates.SPECIAL))} | {EOS}
    return "".join(MARKERS[i - 300] if i >= 300 else chr(i) for i in token_ids if i not in special)


def renderer(template: str | None, **kwargs: Any) -> PromptRenderer:
    return PromptRenderer(MarkerTokenizer(template), "auto", **kwargs)


def thinking(
    template: str | None, mode: Mode, *, at_once: bool = True, on_budget: OnBudget = "force_close"
) -> Thinking | None:
    return renderer(template).thinking(
        mode, budget=8, on_budget=on_budget, answers_at_once=at_once, arm="a"
    )


# --- What a template does about thoughts ---------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "think", "expected"),
    [
        (templates.QWEN3, True, "absent"),
        (templates.QWEN3, False, "closed"),
        (templates.DEEPSEEK_R1, True, "open"),
        (templates.DEEPSEEK_R1, False, "open"),
        (templates.GPT_OSS, True, "absent"),
        (templates.GPT_OSS, False, "absent"),
        (templates.GEMMA, True, "absent"),
        (templates.ALWAYS_CLOSED, True, "closed"),
        (None, True, "absent"),
    ],
)
def test_the_state_of_a_thought_is_read_from_the_rendered_ids(
    template: str | None, think: bool, expected: str
) -> None:
    assert renderer(template).thought_state(think=think) == expected


@pytest.mark.parametrize("quoted", ["<think>", "</think>", "<|channel|>final<|message|>"])
@pytest.mark.parametrize("template", [templates.QWEN3, templates.DEEPSEEK_R1, templates.GPT_OSS])
def test_a_marker_that_a_question_quotes_opens_and_closes_nothing(
    template: str, quoted: str
) -> None:
    made = renderer(template)
    before = made.thought_state(think=True)
    made.render([f"What does {quoted} mean? {quoted}"], think=True)
    assert made.thought_state(think=True) == before


def test_a_template_that_obeys_the_question_is_refused() -> None:
    made = renderer(templates.OBEYS_THE_QUESTION)
    made.render(["Harmless"])
    with pytest.raises(EngineError, match="something else about thoughts"):
        made.render(["Quick! /no_think"])


@pytest.mark.parametrize(
    ("template", "opening", "closing", "forced"),
    [
        (templates.QWEN3, "<think>\n", "\n\n", "\n</think>\n\n"),
        (templates.DEEPSEEK_R1, "", "\n\n", "\n</think>\n\n"),
        (
            templates.GPT_OSS,
            "<|channel|>analysis<|message|>",
            "<|start|>assistant<|channel|>final<|message|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
        ),
    ],
)
def test_a_native_thought_is_opened_and_closed_as_its_family_does(
    template: str, opening: str, closing: str, forced: str
) -> None:
    made = thinking(template, "native")
    assert made is not None
    assert (made.opening, made.closing, made.forced_closing) == (
        ids(opening),
        ids(closing),
        ids(forced),
    )
    assert len(made.stop_token_ids) == 1


def test_markers_of_several_tokens_are_waited_for_as_text() -> None:
    made = PromptRenderer(MarkerTokenizer(templates.QWEN3, plain_markers=True), "auto")
    assert made.thought_state(think=True) == "absent"
    assert made.thought_state(think=False) == "closed"
    native = made.thinking("native", budget=8, on_budget="truncate", answers_at_once=True, arm="a")
    assert native is not None
    assert (native.stop_token_ids, native.stop_text) == ((), "</think>")


@pytest.mark.parametrize(
    ("template", "mode", "told"),
    [
        (None, "native", "names no thought markers"),
        (templates.GEMMA, "native", "names no thought markers"),
        (templates.ALWAYS_CLOSED, "native", "closes the thought before"),
        (templates.DEEPSEEK_R1, "none", "opens a thought"),
        (templates.DEEPSEEK_R1, "prompted", "opens a thought"),
        (templates.GPT_OSS, "none", "lets the model think by default"),
        (templates.GPT_OSS, "prompted", "lets the model think by default"),
    ],
)
def test_a_model_that_cannot_think_so_or_would_anyway_is_refused(
    template: str | None, mode: Mode, told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        thinking(template, mode)
    assert "'a'" in str(caught.value)
    assert "thinking: " in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [None, templates.GEMMA, templates.QWEN3, templates.TOLD_BY_SYSTEM, templates.ALWAYS_CLOSED],
)
def test_a_model_that_does_not_think_or_can_be_told_not_to_may_answer_at_once(
    template: str | None,
) -> None:
    assert thinking(template, "none") is None
    assert thinking(template, "prompted") is not None


def test_without_a_constraint_any_model_may_think_or_not() -> None:
    assert thinking(templates.DEEPSEEK_R1, "none", at_once=False) is None


def test_a_model_that_is_known_not_to_think_is_taken_at_its_word() -> None:
    made = renderer(templates.GPT_OSS, thinks="never")
    assert made.markers is None
    made.thinking("none", budget=0, on_budget="truncate", answers_at_once=True, arm="a")


# --- Generated ids taken apart --------------------------------------------------------------------

TINY = Markers(open=(1,), end=(2,), close=(2,))


@pytest.mark.parametrize(
    ("generated", "opened", "thought", "answer", "closed"),
    [
        ([8, 9], False, (), (8, 9), True),
        ([1, 8, 2, 9], False, (8,), (9,), True),
        ([8, 2, 9], True, (8,), (9,), True),
        ([8, 2, 9], False, (8,), (9,), True),  # the prompt had opened it, unseen
        ([8, 9], True, (8, 9), (), False),
        ([1, 8, 9], False, (8, 9), (), False),
        ([7, 1, 8], False, (8,), (7,), False),
        ([1, 8, 2, 1, 9, 2, 7], False, (8, 9), (7,), True),  # two thoughts
        ([1, 8, 2, 7, 1, 9], False, (8,), (7,), False),
        ([], True, (), (), False),
        ([], False, (), (), True),
    ],
)
def test_the_answer_is_what_follows_the_last_closed_thought(
    generated: list[int],
    opened: bool,
    thought: tuple[int, ...],
    answer: tuple[int, ...],
    closed: bool,
) -> None:
    split = split_thought(generated, TINY, opened=opened)
    assert (split.thought, split.answer, split.closed) == (thought, answer, closed)
    assert split.num_thought_tokens == len(generated) - len(answer)


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", "5", " "]), max_size=12))
def test_ids_and_text_agree_on_what_the_answer_is(pieces: list[str]) -> None:
    text = "".join(pieces)
    markers = Markers(open=ids("<think>"), end=ids("</think>"), close=ids("</think>"))
    split = split_thought(ids(text), markers, opened=False)
    assert decode(split.answer).strip() == answer_of(text)
    if not text.endswith("<think>") and "<think>" in text + "</think>":
        assert (thought_state(ids(text), markers) == "open") == (not split.closed)


# --- The calls of one request ---------------------------------------------------------------------

DIGIT = Constraint("format", texts(tuple("01234567")))
FREE = Constraint("none")


def request(
    template: str | None,
    mode: Mode,
    constraint: Constraint = DIGIT,
    *,
    on_budget: OnBudget = "force_close",
    temperature: float = 0.0,
) -> Request:
    made = renderer(template)
    (prompt,) = made.render(["Q"], think=mode == "native")
    planned = PlannedRequest(
        key="r",
        instance_key="i",
        task="REL-A1",
        arm="a",
        sample=0,
        seed=7 if temperature else None,
        chunk=0,
        num_prompt_tokens=len(prompt),
        max_tokens=4,
        constraint_kind=constraint.kind,
        constraint_digest=constraint.digest,
    )
    return Request(
        planned,
        prompt,
        constraint,
        temperature=temperature,
        top_p=1.0,
        thinking=thinking(
            template, mode, at_once=constraint.expression is not None, on_budget=on_budget
        ),
        markers=made.markers,
        thought_opened=made.thought_state(think=mode == "native") == "open",
    )


def said(text: str, finish_reason: str = "stop", *, stopped_by_text: bool = False) -> Answer:
    return Answer(decode(ids(text)), ids(text), finish_reason, stopped_by_text=stopped_by_text)


def drive(asked: Request, *answers: Answer) -> tuple[list[Call], Completion]:
    steps = request_steps(asked, decode)
    calls = [next(steps), *(steps.send(answer) for answer in answers[:-1])]
    with pytest.raises(StopIteration) as end:
        steps.send(answers[-1])
    return calls, end.value.value


@pytest.mark.parametrize(
    ("template", "mode", "thought", "between", "text"),
    [
        # Opened by us, ended by the model.
        (templates.QWEN3, "native", said("hm</think>"), "<think>\nhm</think>\n\n", "hm"),
        # Opened by the template.
        (templates.DEEPSEEK_R1, "native", said("hm</think>"), "hm</think>\n\n", "hm"),
        (
            templates.GPT_OSS,
            "native",
            said("hm<|end|>"),
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>",
            "hm",
        ),
        # Cut off by the budget.
        (
            templates.QWEN3,
            "native",
            said("so it is", "length"),
            "<think>\nso it is\n</think>\n\n",
            "so it is",
        ),
        # The model ended its turn, not its thought.
        (templates.QWEN3, "native", said("hm§"), "<think>\nhm\n</think>\n\n", "hm"),
        # Ended with its last allowed token: it is closed, not cut.
        (templates.QWEN3, "native", said("hm</think>", "length"), "<think>\nhm</think>\n\n", "hm"),
        # A second opening within a thought is part of it.
        (
            templates.DEEPSEEK_R1,
            "native",
            said("a<think>b</think>"),
            "a<think>b</think>\n\n",
            "a<think>b",
        ),
        # A thought that contains an answer is a thought.
        (
            templates.QWEN3,
            "native",
            said("Answer 2</think>"),
            "<think>\nAnswer 2</think>\n\n",
            "Answer 2",
        ),
        # Prompted: ended by the prefix, by the end of the turn, by the budget.
        (
            templates.GEMMA,
            "prompted",
            Answer("hm\n\n", ids("hm\n\nFinal answer:"), "stop", stopped_by_text=True),
            "hm\n\nFinal answer:\n",
            "hm",
        ),
        (
            templates.GEMMA,
            "prompted",
            said("It is 2. §"),
            "It is 2.\n\nFinal answer:\n",
            "It is 2.",
        ),
        (None, "prompted", said("so it", "length"), "so it\n\nFinal answer:\n", "so it"),
        (None, "prompted", said("§"), "\n\nFinal answer:\n", ""),
    ],
)
def test_the_reply_is_asked_after_prompt_thought_and_closing(
    template: str | None, mode: Mode, thought: Answer, between: str, text: str
) -> None:
    asked = request(template, mode)
    (first, second), done = drive(asked, thought, said("5§"))
    assert first.token_ids == asked.prompt_token_ids + (
        asked.thinking.opening if asked.thinking else ()
    )
    assert (first.purpose, first.constraint, first.max_tokens) == ("thought", None, 8)
    assert second.token_ids == asked.prompt_token_ids + ids(between)
    assert (second.purpose, second.constraint, second.max_tokens) == ("reply", DIGIT, 4)
    assert (done.status, done.reply, done.thought) == ("ok", "5", text)
    assert done.constraint_held is True
    assert done.output_token_ids == ids(between) + ids("5§")
    assert done.num_thought_tokens == len(thought.token_ids)
    assert done.num_output_tokens == len(thought.token_ids) + 2


def test_a_thought_that_hits_its_budget_may_end_the_reply() -> None:
    (call,), done = drive(
        request(templates.QWEN3, "native", on_budget="truncate"), said("Answer 5 mayb", "length")
    )
    assert call.purpose == "thought"
    assert (done.status, done.reply, done.thought) == ("truncated_thinking", "", "Answer 5 mayb")
    assert (done.constraint_held, done.error, done.finish_reason) == (None, None, "length")
    assert done.num_output_tokens == done.num_thought_tokens == 13


def test_a_thought_that_ends_in_time_is_answered_whatever_on_budget_says() -> None:
    calls, done = drive(
        request(templates.QWEN3, "native", on_budget="truncate"), said("a</think>"), said("5§")
    )
    assert len(calls) == 2
    assert done.status == "ok"


def test_an_engine_that_fails_in_the_thought_gives_an_error_and_no_reply() -> None:
    _, done = drive(request(templates.QWEN3, "native"), said("hm", "abort"))
    assert (done.status, done.reply) == ("engine_error", "")
    assert "abort" in str(done.error)


def test_thought_and_reply_draw_with_seeds_of_their_own() -> None:
    (first, second), _ = drive(
        request(templates.QWEN3, "native", FREE, temperature=1.0), said("a</think>"), said("5§")
    )
    assert (first.seed, second.seed) == (7, 8)
    assert first.temperature == second.temperature == 1.0


@pytest.mark.parametrize(
    ("template", "answer", "status", "thought", "reply"),
    [
        # A model that is left alone thinks in its reply; the thought is taken out.
        (templates.DEEPSEEK_R1, said("hm</think>\n\n5§"), "ok", "hm", "5"),
        (templates.DEEPSEEK_R1, said("hm, 5", "length"), "truncated_thinking", "hm, 5", ""),
        (templates.DEEPSEEK_R1, said("hm</think>\n\n5 or", "length"), "truncated", "hm", "5 or"),
        (templates.QWEN3, said("5§"), "ok", "", "5"),
        (templates.QWEN3, said("<think>a</think><think>b</think>5§"), "ok", "ab", "5"),
        (
            templates.GPT_OSS,
            said(
                "<|channel|>analysis<|message|>hm<|end|>"
                "<|start|>assistant<|channel|>final<|message|>5<|return|>"
            ),
            "ok",
            "hm",
            "5",
        ),
        (
            templates.GPT_OSS,
            said("<|channel|>final<|message|>5<|return|>"),
            "ok",
            "",
            "5",
        ),
        (
            templates.GPT_OSS,
            said("<|channel|>analysis<|message|>hm", "length"),
            "truncated_thinking",
            "hm",
            "",
        ),
        # Without markers of its own a model has replies and no thoughts.
        (templates.GEMMA, said("<think>hm</think>5§"), "ok", "", "<think>hm</think>5"),
    ],
)
def test_what_a_free_model_thinks_is_no_part_of_its_reply(
    template: str, answer: Answer, status: str, thought: str, reply: str
) -> None:
    (call,), done = drive(request(template, "none", FREE), answer)
    assert call.purpose == "reply"
    assert (done.status, done.thought, done.reply) == (status, thought, reply)
    assert done.output_token_ids == answer.token_ids
    assert done.num_output_tokens == len(answer.token_ids)


def test_a_second_thought_after_the_first_one_joins_it() -> None:
    _, done = drive(
        request(templates.QWEN3, "native", FREE), said("a</think>"), said("<think>b</think>5§")
    )
    assert (done.thought, done.reply, done.status) == ("a\n\nb", "5", "ok")
    assert done.num_thought_tokens == 2 + 3


# --- From the config to the score -----------------------------------------------------------------


def test_only_the_answer_is_graded() -> None:
    (instance, *_) = read_instances("bundled", tasks=["REL-A1"])
    right = str(instance.answer["target"])
    wrong = str((instance.answer["target"] + 1) % 8)
    engine = FakeEngine(lambda _: FakeReply(right, thought=f"The answer is {wrong}."))
    arm = ArmConfig(name="a", thinking="prompted", thinking_budget=100)
    made = PromptRenderer(ByteTokenizer(), "auto")
    plan = plan_requests([instance], [arm], made, model_commit="c", seed=0)
    requests = map(
        Materialiser({instance.key: instance}, {"a": arm}.values(), made, compile_nothing),
        plan.requests,
    )
    (done,) = engine.generate(requests)
    assert (done.reply, done.thought) == (right, f"The answer is {wrong}.")
    assert score_reply(instance, done.reply).correct


def test_a_script_may_say_what_was_thought(tmp_path: Path) -> None:
    (instance, *_) = read_instances("bundled", tasks=["REL-C1"])
    script = tmp_path / "script.jsonl"
    entry = {"instance": instance.key, "reply": "<No>", "thought": "one, two, three"}
    script.write_text(json.dumps(entry), encoding="utf-8")
    engine = FakeEngine(scripted_replies(script, {instance.key: instance}))
    made = PromptRenderer(ByteTokenizer(), "auto")
    for budget, thought in ((20, "one, two, three"), (5, "one,")):
        arm = ArmConfig(name="a", thinking="prompted", thinking_budget=budget)
        plan = plan_requests([instance], [arm], made, model_commit="c", seed=0)
        requests = map(
            Materialiser({instance.key: instance}, {"a": arm}.values(), made, compile_nothing),
            plan.requests,
        )
        (done,) = engine.generate(requests)
        assert (done.reply, done.thought) == ("<No>", thought)


def test_the_context_holds_prompt_thought_and_reply() -> None:
    (instance, *_) = read_instances("bundled", tasks=["REL-C1"])
    made = renderer(templates.QWEN3)
    arm = ArmConfig(name="a", thinking="native", thinking_budget=1000, max_tokens=10)
    (planned,) = plan_requests([instance], [arm], made, model_commit="c", seed=0).requests
    around = len(ids("<think>\n")) + len(ids("\n</think>\n\n"))
    assert planned.num_reserved_tokens == 1000 + around
    assert planned.num_context_tokens == planned.num_prompt_tokens + 1000 + around + 10


def test_arms_that_think_otherwise_have_prompts_and_keys_of_their_own() -> None:
    (instance, *_) = read_instances("bundled", tasks=["REL-C1"])
    made = renderer(templates.QWEN3)
    arms = [
        ArmConfig(name="none"),
        ArmConfig(name="native", thinking="native"),
        ArmConfig(name="short", thinking="native", thinking_budget=9),
        ArmConfig(name="prompted", thinking="prompted"),
    ]
    plan = plan_requests([instance], arms, made, model_commit="c", seed=0)
    requests = {
        r.planned.arm: r
        for r in map(
            Materialiser(
                {instance.key: instance}, {a.name: a for a in arms}.values(), made, compile_nothing
            ),
            plan.requests,
        )
    }
    assert len({r.key for r in plan.requests}) == 4
    prompts = {name: decode(r.prompt_token_ids) for name, r in requests.items()}
    assert prompts["none"].endswith("</think>\n\n")
    assert prompts["native"] == prompts["short"] != prompts["none"]
    assert PROMPTED_INSTRUCTION in prompts["prompted"]
    assert all(len(r.prompt_token_ids) == r.planned.num_prompt_tokens for r in requests.values())


def test_a_budget_without_thinking_is_refused() -> None:
    with pytest.raises(ValueError, match="thinking_budget is set"):
        ArmConfig(name="a", thinking_budget=100)
