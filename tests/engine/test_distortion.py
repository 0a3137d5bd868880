"""What a constraint changed is measured on the reply itself; options are ranked in few calls."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rel_batch.config import ArmConfig
from rel_batch.constraints import Chars, Constraint, OneOf, Repeat, Text, texts
from rel_batch.constraints.options import options_of
from rel_batch.engine.calls import Answer, Call, TokenScore
from rel_batch.engine.distortion import option_logprobs
from rel_batch.engine.fake import FakeEngine, FakeReply, oracle_replies
from rel_batch.engine.steps import request_steps
from rel_batch.errors import DataError
from rel_batch.instances import read_instances
from rel_batch.plan import Materialiser, compile_nothing, plan_requests
from rel_batch.prompts import ByteTokenizer, PromptRenderer
from rel_batch.records import Completion, Instance, Request
from rel_batch.tasks import task_for

RENDERER = PromptRenderer(ByteTokenizer(), "auto")
MEASURED = ArmConfig(name="a", measure_distortion=True)
RANKED = ArmConfig(name="a", decoding="likelihood")


def one(task: str) -> Instance:
    return next(iter(read_instances("bundled", tasks=[task])))  # type: ignore[list-item]


def planned(instance: Instance, arm: ArmConfig) -> Request:
    plan = plan_requests([instance], [arm], RENDERER, model_commit="c", seed=0)
    (request,) = map(
        Materialiser({instance.key: instance}, {arm.name: arm}.values(), RENDERER, compile_nothing),
        plan.requests,
    )
    return request


def fake(instance: Instance, arm: ArmConfig, reply: str) -> Completion:
    (done,) = FakeEngine(lambda _: FakeReply(reply)).generate([planned(instance, arm)])
    return done


# --- Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraint", "options"),
    [
        (Constraint("format", texts(("<Yes>", "<No>"))), ("<Yes>", "<No>")),
        (Constraint("format", texts(("1", "10"))), None),  # "1" might go on as "10"
        (Constraint("format", texts(tuple(f"<{i}>" for i in range(65)))), None),
        (Constraint("format", OneOf((Text("a"), Chars("bc")))), None),
        (Constraint("format", Repeat(Text("a"), 0, 3)), None),
        (Constraint("none"), None),
    ],
)
def test_options_are_the_texts_of_a_short_list_that_do_not_begin_with_each_other(
    constraint: Constraint, options: tuple[str, ...] | None
) -> None:
    assert options_of(constraint) == options


@pytest.mark.parametrize("task", ["REL-A1", "REL-A2", "REL-A3", "REL-A4", "REL-C1"])
def test_the_tasks_of_a_choice_have_options_and_gold_is_one_of_them(task: str) -> None:
    instance = one(task)
    options = options_of(task_for(task).constraint(instance, "format"))
    assert options is not None
    assert task_for(task).reference_reply(instance) in options


def ask_options(options: list[str], probability: dict[tuple[int, ...], float]) -> dict[str, float]:
    """Drive the calls for `options` with a model that has `probability` for each id path."""
    steps = option_logprobs((1, 2), [(option, tuple(option.encode())) for option in options])
    answer: Answer | None = None
    asked: set[tuple[int, ...]] = set()
    while True:
        try:
            call: Call = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            return end.value
        assert call.token_ids[:2] == (1, 2)
        branch = call.token_ids[2:]
        assert branch not in asked, "a branch is asked for once"
        asked.add(branch)
        answer = Answer(
            "",
            (0,),
            "length",
            candidate_logprobs={
                token: math.log(probability.get((*branch, token), 0.5)) for token in call.candidates
            },
        )


def test_an_option_is_as_likely_as_all_its_tokens_together() -> None:
    probability = {tuple(b"<"): 0.8, tuple(b"<Y"): 0.6, tuple(b"<N"): 0.3}
    found = ask_options(["<Y>", "<N>"], probability)
    assert found == {
        "<Y>": pytest.approx(math.log(0.8 * 0.6 * 0.5)),
        "<N>": pytest.approx(math.log(0.8 * 0.3 * 0.5)),
    }


@given(st.sets(st.text("ab", min_size=3, max_size=3), min_size=1))
def test_options_that_share_a_beginning_share_its_call(options: set[str]) -> None:
    # Each token follows with probability 1/2, so every option of three has 1/8.
    found = ask_options(sorted(options), {})
    assert found == {option: pytest.approx(math.log(1 / 8)) for option in sorted(options)}


# --- A measured reply -----------------------------------------------------------------------------


def test_share_and_cost_are_those_of_the_replys_tokens() -> None:
    request = planned(one("REL-C1"), MEASURED)
    steps = request_steps(request, lambda ids: bytes(ids).decode())
    assert next(steps).purpose == "reply"
    reply = tuple(b"<No>")
    call = steps.send(Answer("<No>", reply, "stop"))
    assert call.purpose == "token_scores"
    assert call.token_ids == request.prompt_token_ids + reply
    assert (call.scored_from, call.max_tokens) == (len(request.prompt_token_ids), 1)
    assert call.constraint is None
    scores = (
        TokenScore(-0.5, 1, -0.5),
        TokenScore(-3.0, 4, -1.0),
        TokenScore(-2.0, 2, -1.5),
        TokenScore(-0.1, 1, -0.1),
    )
    call = steps.send(Answer("", (0,), "length", token_scores=scores))
    while True:
        assert call.purpose == "option_logprobs"
        logprobs = dict.fromkeys(call.candidates, -1.0)
        try:
            call = steps.send(Answer("", (0,), "length", candidate_logprobs=logprobs))
        except StopIteration as end:
            done: Completion = end.value
            break
    assert (done.status, done.reply, done.output_token_ids) == ("ok", "<No>", reply)
    assert done.token_logprobs == (-0.5, -3.0, -2.0, -0.1)
    assert done.token_ranks == (1, 4, 2, 1)
    assert done.overruled_share == 0.5
    assert done.logprob_cost == pytest.approx(2.0 + 0.5)
    assert done.option_logprobs == {"<Yes>": -5.0, "<No>": -4.0}
    assert done.num_output_tokens == 4


def test_scores_of_another_number_of_tokens_are_no_measurement() -> None:
    request = planned(one("REL-B1"), MEASURED)
    steps = request_steps(request, lambda ids: bytes(ids).decode())
    next(steps)
    steps.send(Answer("No", tuple(b"No"), "stop"))
    with pytest.raises(StopIteration) as end:
        steps.send(Answer("", (0,), "length", token_scores=()))
    done: Completion = end.value.value
    assert (done.status, done.reply, done.token_ranks) == ("ok", "No", None)
    assert "not measured" in str(done.error)


def test_a_reply_that_the_model_would_have_given_costs_nothing() -> None:
    done = fake(one("REL-C1"), MEASURED, "<Yes>")
    assert (done.overruled_share, done.logprob_cost) == (0.0, 0.0)
    assert done.token_ranks == (1,) * 5
    assert done.option_logprobs is not None
    assert max(done.option_logprobs, key=lambda o: done.option_logprobs[o]) == "<Yes>"
    assert sum(map(math.exp, done.option_logprobs.values())) <= 1.0


def test_a_reply_without_measuring_has_no_figures() -> None:
    done = fake(one("REL-C1"), ArmConfig(name="a"), "<Yes>")
    figures = (done.token_logprobs, done.token_ranks, done.overruled_share, done.logprob_cost)
    assert figures == (None,) * 4
    assert done.option_logprobs is None


def test_a_task_without_options_is_measured_without_them() -> None:
    done = fake(one("REL-C3"), MEASURED, "<smiles>C</smiles>")
    assert done.overruled_share == 0.0
    assert done.option_logprobs is None


# --- The likelihood arm ---------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["REL-A1", "REL-A4", "REL-C1"])
def test_the_reply_is_the_option_that_the_model_ranks_first(task: str) -> None:
    instance = one(task)
    engine = FakeEngine(oracle_replies({instance.key: instance}))
    (done,) = engine.generate([planned(instance, RANKED)])
    assert done.reply == task_for(task).reference_reply(instance)
    assert (done.status, done.constraint_held) == ("ok", True)
    assert (done.num_output_tokens, done.output_token_ids) == (0, ())
    assert done.option_logprobs is not None
    assert done.token_logprobs is None


def test_options_may_be_ranked_after_a_thought() -> None:
    instance = one("REL-C1")
    arm = ArmConfig(name="a", decoding="likelihood", thinking="prompted", thinking_budget=50)
    (done,) = FakeEngine(lambda _: FakeReply("<No>", thought="hm")).generate(
        [planned(instance, arm)]
    )
    assert (done.reply, done.thought) == ("<No>", "hm")


def test_a_likelihood_arm_leaves_out_the_tasks_without_options() -> None:
    instances = list(read_instances("bundled"))
    plan = plan_requests(instances, [RANKED], RENDERER, model_commit="c", seed=0)
    assert {r.task for r in plan.requests} == {"REL-A1", "REL-A2", "REL-A3", "REL-A4", "REL-C1"}


def test_a_run_of_nothing_to_rank_is_refused(tmp_path: Any) -> None:
    from rel_batch.config import validate_config
    from rel_batch.launch.prepare import prepare

    config = validate_config(
        {
            "run": "r",
            "output_dir": str(tmp_path),
            "model": {"path": "none"},
            "instances": {"tasks": ["REL-B1"]},
            "engine": {"kind": "fake"},
            "arms": [{"name": "a", "decoding": "likelihood"}],
        },
        "config",
    )
    with pytest.raises(DataError, match="short list of options"):
        prepare(config)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"measure_distortion": True, "constraint": "none"}, "needs a constraint"),
        ({"measure_distortion": True, "temperature": 0.7}, "needs temperature 0"),
        ({"decoding": "likelihood", "constraint": "none"}, "needs a constraint"),
        ({"decoding": "likelihood", "temperature": 0.7, "samples": 2}, "needs temperature 0"),
        ({"decoding": "likelihood", "measure_distortion": True}, "nothing to measure"),
    ],
)
def test_settings_that_measure_nothing_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ArmConfig(name="a", **settings)


def test_measuring_leaves_room_for_the_token_that_the_engine_adds() -> None:
    request = planned(one("REL-C1"), MEASURED)
    assert request.planned.num_reserved_tokens == 1
