"""The plan is a function of the config and the instances alone."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import groupby

from rel_batch.config import ArmConfig
from rel_batch.instances import read_instances
from rel_batch.plan import (
    COST_OF_OUTPUT_TOKEN,
    Materialiser,
    Plan,
    compile_nothing,
    cost_of,
    max_tokens_of,
    plan_requests,
)
from rel_batch.prompts import ByteTokenizer, PromptRenderer
from rel_batch.records import Instance
from rel_batch.tasks import task_for

RENDERER = PromptRenderer(ByteTokenizer(), "auto")
FORMAT = ArmConfig(name="format")
FREE = ArmConfig(name="free", constraint="none", temperature=1.0, samples=3)


def bundled() -> list[Instance]:
    return list(read_instances("bundled"))


def planned(instances: list[Instance], *arms: ArmConfig, commit: str = "c", seed: int = 0) -> Plan:
    return plan_requests(instances, arms, RENDERER, model_commit=commit, seed=seed)


def test_every_instance_has_one_request_per_arm_and_sample_each_with_its_own_key() -> None:
    instances = bundled()
    requests = planned(instances, FORMAT, FREE).requests
    assert len(requests) == len(instances) * 4
    assert len({request.key for request in requests}) == len(requests)


def test_the_order_of_the_files_does_not_change_the_plan() -> None:
    instances = bundled()
    shuffled = instances.copy()
    random.Random(3).shuffle(shuffled)
    assert planned(instances, FORMAT, FREE) == planned(shuffled, FORMAT, FREE)


def test_a_key_changes_with_whatever_decides_the_reply() -> None:
    (instance, *_) = bundled()
    base = planned([instance], FREE).requests[0].key
    others = {
        planned([instance], FREE, commit="d").requests[0].key,
        planned([instance], FREE, seed=1).requests[0].key,
        planned([instance], FREE.model_copy(update={"temperature": 0.5})).requests[0].key,
        planned([replace(instance, question=instance.question + " ")], FREE).requests[0].key,
        planned([replace(instance, key="0" * 16)], FREE).requests[0].key,
        planned([instance], FREE).requests[1].key,
    }
    assert base not in others
    assert len(others) == 6


def test_greedy_requests_have_no_seed_and_samples_have_distinct_ones() -> None:
    requests = planned(bundled(), FORMAT, FREE).requests
    seeds = [request.seed for request in requests if request.arm == "free"]
    assert all(request.seed is None for request in requests if request.arm == "format")
    assert None not in seeds
    assert len(set(seeds)) == len(seeds)


def test_requests_of_one_instance_are_adjacent_and_in_one_chunk() -> None:
    requests = planned(bundled(), FORMAT, FREE.model_copy(update={"max_tokens": 64})).requests
    for position in range(0, len(requests), 4):
        group = requests[position : position + 4]
        assert len({(request.instance_key, request.chunk) for request in group}) == 1


def test_an_instance_that_costs_more_than_a_chunk_is_cut_where_little_is_repeated() -> None:
    (instance, *_) = bundled()
    many = FREE.model_copy(update={"samples": 200, "max_tokens": 256})
    requests = planned([instance], many).requests
    by_chunk = Counter(request.chunk for request in requests)
    assert len(by_chunk) > 4
    *whole, _ = by_chunk.values()
    prompt = requests[0].num_prompt_tokens
    for num_requests in whole:
        assert prompt + num_requests * 256 / 4 * COST_OF_OUTPUT_TOKEN >= 16 * prompt
    long = replace(instance, question=instance.question * 100)
    assert {request.chunk for request in planned([long], many).requests} == {0}


def test_a_million_requests_are_some_thousand_chunks_and_the_last_ones_are_small() -> None:
    copies = [
        replace(instance, key=f"{copy:08x}{instance.key}")
        for instance in bundled()
        for copy in range(4)
    ]
    thinks = FREE.model_copy(
        update={"samples": 64, "thinking": "prompted", "thinking_budget": 8192}
    )
    requests = planned(copies, thinks).requests
    costs: Counter[int] = Counter()
    for chunk, group in groupby(requests, key=lambda request: request.chunk):
        costs[chunk] = cost_of(group)
    assert len(costs) < 10_000
    # The first are half of what each of a thousand workers has to do, the last one request.
    assert max(costs.values()) < costs.total() / 2_000
    assert costs[max(costs) - 1] < costs.total() / 16_000


def test_chunks_are_numbered_in_the_order_of_the_plan() -> None:
    chunks = [request.chunk for request in planned(bundled(), FORMAT).requests]
    assert chunks == sorted(chunks)
    assert set(chunks) == set(range(max(chunks) + 1))


def test_materialised_requests_have_the_prompt_that_was_planned() -> None:
    instances = {instance.key: instance for instance in bundled()}
    plan = planned(list(instances.values()), FORMAT, FREE)
    arms = {"format": FORMAT, "free": FREE}
    requests = list(
        map(Materialiser(instances, arms.values(), RENDERER, compile_nothing), plan.requests)
    )
    assert [request.planned for request in requests] == list(plan.requests)
    for request in requests:
        assert len(request.prompt_token_ids) == request.planned.num_prompt_tokens
        assert request.constraint.digest == request.planned.constraint_digest
        assert request.temperature == arms[request.planned.arm].temperature
        question = instances[request.planned.instance_key].question
        assert bytes(request.prompt_token_ids).decode() == question


def test_max_tokens_may_differ_by_task() -> None:
    arm = ArmConfig(name="a", max_tokens={"REL-A1": 3})
    assert max_tokens_of(arm, "REL-A1") == 3
    assert max_tokens_of(arm, "REL-C3") == max_tokens_of(FORMAT, "REL-C3")
    assert max_tokens_of(ArmConfig(name="a", max_tokens=9), "REL-C3") == 9


def test_a_free_reply_has_room_to_talk() -> None:
    free = ArmConfig(name="a", constraint="none")
    assert max_tokens_of(free, "REL-A1") >= 1024 > max_tokens_of(FORMAT, "REL-A1")
    assert max_tokens_of(free, "REL-C4") == max_tokens_of(FORMAT, "REL-C4")


def test_a_prompt_tells_of_json_where_json_is_asked_for() -> None:
    (instance, *_) = bundled()
    arms = {"format": FORMAT, "json": ArmConfig(name="json", constraint="json")}
    plan = planned([instance], *arms.values())
    prompts = {
        request.planned.arm: bytes(request.prompt_token_ids).decode()
        for request in map(
            Materialiser({instance.key: instance}, arms.values(), RENDERER, compile_nothing),
            plan.requests,
        )
    }
    assert prompts["format"] == instance.question
    added = task_for(instance.task).instruction("json")
    assert added
    assert prompts["json"] == instance.question + added


def test_an_arm_that_means_nothing_for_a_task_is_left_out_and_said_once() -> None:
    syntax = ArmConfig(name="syntax", constraint="syntax", examples=1)
    ranked = ArmConfig(name="ranked", decoding="likelihood")
    plan = planned(bundled(), FORMAT, syntax, ranked)
    assert plan.remarks == (
        "arm syntax is left out for REL-A1, REL-A2, REL-A3, REL-A4, REL-B1, REL-C1: constraint "
        "syntax means nothing there",
        "arm ranked is left out for REL-B1, REL-C2, REL-C3, REL-C4: there is no short list of "
        "options to rank",
    )
    tasks = {arm: {r.task for r in plan.requests if r.arm == arm} for arm in ("syntax", "ranked")}
    assert tasks["syntax"] == {"REL-C2", "REL-C3", "REL-C4"}
    assert tasks["ranked"] == {"REL-A1", "REL-A2", "REL-A3", "REL-A4", "REL-C1"}


def test_a_system_prompt_without_a_system_role_is_said_to_stand_before_the_question() -> None:
    (instance, *_) = bundled()
    arm = ArmConfig(name="told", system_prompt="Be brief.")
    plan = planned([instance], arm)
    assert plan.remarks == (
        "arm told: the model has no system role, so its system prompt is put before the question",
    )
    (request,) = map(
        Materialiser({instance.key: instance}, {"told": arm}.values(), RENDERER, compile_nothing),
        plan.requests,
    )
    assert bytes(request.prompt_token_ids).decode() == f"Be brief.\n\n{instance.question}"


def test_each_variant_of_the_prompt_has_keys_of_its_own_and_the_prompt_that_was_planned() -> None:
    instances = {instance.key: instance for instance in bundled()}
    arms = (
        ArmConfig(name="a"),
        ArmConfig(name="a", system_prompt="Be brief."),
        ArmConfig(name="a", examples=1),
        ArmConfig(name="a", examples=1, examples_seed=7),
    )
    keys: list[str] = []
    for arm in arms:
        plan = planned(list(instances.values()), arm)
        keys += [request.key for request in plan.requests]
        for request in map(
            Materialiser(instances, {"a": arm}.values(), RENDERER, compile_nothing), plan.requests
        ):
            assert len(request.prompt_token_ids) == request.planned.num_prompt_tokens
    assert len(set(keys)) == len(keys) == 4 * len(instances)
