"""What an arm asks: the paper's words in every variant, and examples that give nothing away."""

from __future__ import annotations

import dataclasses
import random
import re
from pathlib import Path
from typing import Any

import pytest

from rel_batch.config import ArmConfig
from rel_batch.errors import ConfigError
from rel_batch.instances import read_instances
from rel_batch.judge import score_reply
from rel_batch.prompts import PROMPTED_INSTRUCTION
from rel_batch.records import Instance
from rel_batch.tasks import TASKS, task_for
from rel_batch.variants import Asked, Variants

BUNDLED = list(read_instances("bundled"))


def of(task: str, subset: str | None = None) -> list[Instance]:
    return [i for i in BUNDLED if i.task == task and subset in (None, i.subset)]


def arm(**settings: Any) -> ArmConfig:
    return ArmConfig(name="a", **settings)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"system_prompt": "You are a chemist."},
    {"constraint": "none", "json_instruction": True},
    {"constraint": "json", "json_instruction": False},
    {"examples": 1},
    {"constraint": "none", "thinking": "prompted"},
    {"constraint": "json", "examples": 1, "thinking": "prompted", "system_prompt": "Think."},
]


@pytest.mark.parametrize("settings", VARIANTS)
@pytest.mark.parametrize("task", TASKS)
def test_the_papers_prompt_stands_in_every_variant_word_for_word(
    task: str, settings: dict[str, Any]
) -> None:
    instance = of(task)[0]
    asked = Variants(BUNDLED).asked(instance, arm(**settings))
    assert instance.question in asked.question
    assert instance.question not in asked.system


def test_without_a_variant_nothing_is_added() -> None:
    variants = Variants(BUNDLED)
    for instance in BUNDLED:
        assert variants.asked(instance, arm()) == Asked(instance.question)


@pytest.mark.parametrize(
    ("settings", "told", "why"),
    [
        ({"constraint": "json"}, True, "a model should know what it is held to"),
        ({"constraint": "format"}, False, "the paper's words ask for the format"),
        ({"constraint": "none", "json_instruction": True}, True, "asked for, not enforced"),
        ({"constraint": "json", "json_instruction": False}, False, "enforced, not asked for"),
    ],
)
def test_the_prompt_asks_for_json_where_the_arm_says_so(
    settings: dict[str, Any], told: bool, why: str
) -> None:
    for task in TASKS:
        instance = of(task)[0]
        added = Variants(BUNDLED).asked(instance, arm(**settings)).question
        instruction = task_for(task).instruction("json")
        assert (added == instance.question + instruction) is told, why


def test_a_system_prompt_is_kept_apart_from_the_question() -> None:
    instance = BUNDLED[0]
    asked = Variants(BUNDLED).asked(instance, arm(system_prompt="Be brief."))
    assert asked == Asked(instance.question, system="Be brief.")


def test_the_instruction_to_think_follows_the_question_and_nothing_follows_it() -> None:
    asked = Variants(BUNDLED).asked(BUNDLED[0], arm(thinking="prompted", examples=2))
    assert asked.question.endswith(BUNDLED[0].question + PROMPTED_INSTRUCTION)
    assert asked.question.count(PROMPTED_INSTRUCTION) == 1


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", ["none", "format", "json", "regex"])
def test_examples_show_other_instances_with_correct_replies_in_the_arms_own_format(
    task: str, kind: Any
) -> None:
    variants, settings = Variants(BUNDLED), arm(constraint=kind, examples=2)
    for instance in of(task):
        examples = variants.examples(instance, settings)
        assert len({e.key for e in examples} | {instance.key}) == 3
        parts = variants.asked(instance, settings).question.split("\n\nReply:\n")
        assert len(parts) == 4
        assert parts[3] == ""
        for number, example in enumerate(examples):
            assert example.task == task
            assert example.question in parts[number]
            reply = parts[number + 1].partition("\n\n\n")[0]
            assert task_for(task).constraint(example, kind).matches(reply)
            assert score_reply(example, reply).correct
            assert (reply.startswith("{")) is (kind == "json")
        assert instance.question in parts[2]


def test_an_arm_that_asks_for_json_without_forcing_it_shows_json() -> None:
    settings = arm(constraint="none", json_instruction=True, examples=1)
    shown = Variants(BUNDLED).asked(of("REL-C1")[0], settings).question
    assert re.search(r'Reply:\n\{"answer":"(Yes|No)"\}', shown)


def test_examples_come_from_the_same_subset_where_it_has_enough() -> None:
    variants = Variants(BUNDLED)
    for instance in of("REL-A3", "3x3"):
        assert {e.subset for e in variants.examples(instance, arm(examples=5))} == {"3x3"}
    for instance in of("REL-A3", "5x5"):
        subsets = [e.subset for e in variants.examples(instance, arm(examples=2))]
        assert subsets == ["5x5", "3x3"]


def test_the_draw_depends_on_seed_and_instance_and_on_nothing_else() -> None:
    def drawn(instances: list[Instance], **settings: Any) -> list[list[str]]:
        variants = Variants(instances)
        some = arm(examples=2, **settings)
        return [[e.key for e in variants.examples(i, some)] for i in of("REL-C1")]

    shuffled = BUNDLED.copy()
    random.Random(1).shuffle(shuffled)
    base = drawn(BUNDLED)
    assert drawn(shuffled) == base
    assert drawn(BUNDLED, constraint="json", temperature=0.5) == base
    assert drawn(BUNDLED, examples_seed=1) != base
    assert len({tuple(keys) for keys in base}) > 1


def copies(instance: Instance, **changes: Any) -> list[Instance]:
    """Another instance that has all in common with `instance` but what is changed."""
    return [dataclasses.replace(instance, key=f"like {changes}", **changes)]


def isomers(instance: Instance, given: list[str], missing: list[str]) -> Instance:
    answer = {**instance.answer, "molecules": given, "missing_smiles": missing}
    return dataclasses.replace(instance, key="/".join(given), question=str(given), answer=answer)


B1, C1, C2, C3, C4 = (of(f"REL-{name}")[0] for name in ("B1", "C1", "C2", "C3", "C4"))


@pytest.mark.parametrize(
    ("asked", "others", "why"),
    [
        (BUNDLED[0], copies(BUNDLED[0]), "the same question under another key"),
        (
            B1,
            copies(B1, question=B1.question.replace("homoplasy", "homoplasies")),
            "the same alignment",
        ),
        (
            C1,
            copies(C1, question="other", answer={**C1.answer, "molecules": ["CCO", "COC"]})
            + copies(C1, question="more", answer={"molecules": [*C1.answer["molecules"][:1], "C"]}),
            "a molecule of the list (the first of the others is no harm)",
        ),
        (
            C2,
            copies(C2, question="other", answer={**C2.answer, "molecules": ["CCO", "COC"]}),
            "the same common motif",
        ),
        (
            isomers(C3, ["CCO"], ["COC"]),
            [isomers(C3, ["COC"], ["CCO"])],
            "the same formula, where what is given there is missing here",
        ),
        (
            isomers(C3, ["CCCO", "CCOC"], ["CC(C)O"]),
            [isomers(C3, ["CC(O)C"], ["OCCC", "COCC"])],
            "the same formula in other spellings",
        ),
    ],
)
def test_no_example_gives_gold_away(asked: Instance, others: list[Instance], why: str) -> None:
    harmless = len(others) - 1
    with pytest.raises(ConfigError, match=f"only {harmless} other instances"):
        Variants([asked, *others]).examples(asked, arm(examples=len(others)))
    assert why


def test_no_example_of_the_released_set_gives_gold_away(shared: Path) -> None:
    released = list(read_instances(str(shared / "data" / "rel" / "chemistry" / "REL-C3.jsonl")))
    variants = Variants(released)
    for instance in released[::50]:
        gold = set(instance.answer["missing_smiles"])
        for example in variants.examples(instance, arm(examples=3)):
            assert gold.isdisjoint(example.answer["molecules"])
            assert gold.isdisjoint(example.answer["missing_smiles"])


def test_too_few_instances_for_the_examples_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match="only 7 other instances of REL-A1") as caught:
        Variants(BUNDLED).asked(of("REL-A1")[0], arm(examples=8))
    assert "fewer worked examples" in (caught.value.hint or "")


@pytest.mark.parametrize("task", TASKS)
def test_json_that_was_asked_for_is_read_wherever_a_model_puts_it(task: str) -> None:
    instance = of(task)[0]
    reply = task_for(task).reference_reply_for(instance, "json")
    for text in (
        reply,
        reply.replace(",", ", ").replace(":", ": "),
        f"```json\n{reply}\n```",
        f"Here is the answer:\n{reply}",
    ):
        assert score_reply(instance, text).verdict == "correct", text
    # What follows may take it back: then the text is read as any other.
    taken_back = f"As {reply}, or rather:"
    assert task_for(task).read_answer(taken_back, truncated=False) == (taken_back, False)
