"""What holds for every REL task, those of today and those to come."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from drawing import admitted_by
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rel_batch import constraint_for, read_instances, score_reply
from rel_batch.constraints import ASSISTED, Kind
from rel_batch.errors import ConfigError
from rel_batch.records import VERDICTS, Instance, Score
from rel_batch.tasks import TASKS, task_for

SWEEP = os.environ.get("REL_BATCH_SWEEP") == "1"
BUNDLED = read_instances("bundled")
# One instance of each task and subset; for B1 one of each label too.
SAMPLE = list(
    {(i.task, i.subset, str(i.answer.get("label"))): i for i in reversed(BUNDLED)}.values()
)
NOTATION = {"REL-B1_300bp.jsonl": "names"}


def of(instance: Instance) -> str:
    return f"{instance.task}-{instance.subset}-{instance.id}"


each_task = pytest.mark.parametrize("name", sorted(TASKS))
each_bundled = pytest.mark.parametrize("instance", BUNDLED, ids=of)
each_sample = pytest.mark.parametrize("instance", SAMPLE, ids=of)
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def test_there_are_nine_tasks_and_the_bundled_set_has_at_least_six_instances_of_each() -> None:
    counts = {name: sum(i.task == name for i in BUNDLED) for name in TASKS}
    assert sorted(counts) == [
        *("REL-A1", "REL-A2", "REL-A3", "REL-A4", "REL-B1"),
        *("REL-C1", "REL-C2", "REL-C3", "REL-C4"),
    ]
    assert min(counts.values()) >= 6


@each_task
def test_a_task_says_what_it_is(name: str) -> None:
    task = task_for(name)
    assert task.name == name
    assert task.title
    assert task.domain in {"algebra", "biology", "chemistry"}
    assert task.constraint_kinds[:2] == ("none", "format")
    assert task.max_tokens > 0


def test_an_unknown_task_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="unknown task 'REL-A9'; did you mean 'REL-A"):
        task_for("REL-A9")


@each_bundled
def test_the_reference_reply_is_admitted_by_every_constraint_and_scored_correct(
    instance: Instance,
) -> None:
    holds_for_its_reference(instance)


def test_the_reference_reply_of_every_record_that_was_released_is_admitted_and_scored_correct(
    shared: Path,
) -> None:
    keys: set[str] = set()
    for number, instance in enumerate(all_shared(shared)):
        # What the assisted rung reads of a molecule takes 0.2 s where it is new.
        holds_for_its_reference(instance, assisted=SWEEP or number % 60 == 0)
        assert instance.key not in keys
        keys.add(instance.key)
    assert len(keys) == 4237


def all_shared(shared: Path) -> Iterator[Instance]:
    for path in sorted((shared / "data").rglob("*.jsonl")):
        notation = NOTATION.get(path.name, "auto")
        yield from read_instances(path, taxa_notation=notation)  # type: ignore[arg-type]


def holds_for_its_reference(instance: Instance, *, assisted: bool = True) -> None:
    task = task_for(instance.task)
    assert task.reference_reply_for(instance, "format") == task.reference_reply(instance)
    for kind in task.constraint_kinds:
        if kind in ASSISTED and not assisted:
            continue
        reply = task.reference_reply_for(instance, kind)
        constraint = constraint_for(instance, kind)
        assert constraint.kind == kind
        assert constraint.matches(reply)
        assert constraint.admits_prefix(reply[: len(reply) // 2])
        score = score_reply(instance, reply)
        assert (score.verdict, score.failure) == ("correct", None)
        if score.f1 is not None:
            assert (score.precision, score.recall, score.f1) == (1.0, 1.0, 1.0)


@each_sample
def test_an_empty_reply_and_a_thought_alone_are_unparsed(instance: Instance) -> None:
    reply = task_for(instance.task).reference_reply(instance)
    for silent in ("", " \n", f"<think>{reply}</think>", f"<think>{reply}", f"{reply}</think>"):
        for finish_reason in ("stop", "length"):
            assert score_reply(instance, silent, finish_reason).verdict == "unparsed"


@each_sample
def test_a_thought_before_the_reference_reply_does_not_matter(instance: Instance) -> None:
    reply = task_for(instance.task).reference_reply(instance)
    assert score_reply(instance, f"<think>No: Answer 1 or 2</think>\n\n{reply}").correct
    assert score_reply(instance, f"First, Answer 1.</think>{reply}\n").correct


@each_sample
def test_a_reply_cut_before_the_reference_reply_ends_is_never_correct(instance: Instance) -> None:
    reply = task_for(instance.task).reference_reply(instance)
    cuts = range(len(reply)) if len(reply) < 200 else range(0, len(reply), 7)
    for cut in cuts:
        assert not score_reply(instance, reply[:cut], "length").correct


@pytest.mark.parametrize(
    ("instance", "kind"),
    [(i, kind) for i in SAMPLE for kind in task_for(i.task).constraint_kinds if kind != "none"],
    ids=lambda value: of(value) if isinstance(value, Instance) else value,
)
def test_what_a_constraint_admits_is_never_unparsed(instance: Instance, kind: Kind) -> None:
    constraint = constraint_for(instance, kind)

    @quick
    @given(admitted_by(constraint))
    def holds(reply: str) -> None:
        assert constraint.matches(reply)
        assert score_reply(instance, reply).parsed

    holds()


@each_sample
def test_a_prompt_is_told_of_json_and_of_nothing_else(instance: Instance) -> None:
    task = task_for(instance.task)
    for kind in task.constraint_kinds:
        instruction = task.instruction(kind)
        assert bool(instruction) == kind.startswith("json")
        assert task.json_example in instruction or not instruction


@each_sample
def test_scoring_is_total_and_pure(instance: Instance) -> None:
    reply = task_for(instance.task).reference_reply(instance)
    pieces = st.sampled_from(
        [
            *(
                reply,
                reply[: len(reply) // 2],
                "<think>",
                "</think>",
                "Answer ",
                "Yes",
                "No",
                "or ",
            ),
            *("<smiles>", "</smiles>", "<motif_0>", "c1ccccc1", "\\boxed{", "}", "{", "[", "```"),
            *("\0", "\ud800", "\ue000", "é", "7", "-1", "1e9", ", ", "\n", "wait ", "None"),
            *('"answer":', "or "),
        ]
    )

    @quick
    @given(
        st.text() | st.lists(pieces | st.text(max_size=3), max_size=12).map("".join),
        st.sampled_from(["stop", "length", None, "error"]),
        st.sampled_from(["strict", "upstream"]),
    )
    def holds(text: str, finish_reason: str | None, scorer: str) -> None:
        score = score_reply(instance, text, finish_reason, scorer)
        assert score == score_reply(instance, text, finish_reason, scorer)
        is_a_score(score)

    holds()


def is_a_score(score: Score) -> None:
    assert score.verdict in VERDICTS
    assert score.correct == (score.verdict == "correct") == (score.failure is None)
    assert score.parsed == (score.verdict != "unparsed")
    for share in (score.precision, score.recall, score.f1, score.overlap):
        assert share is None or 0.0 <= share <= 1.0
    json.dumps(score.prediction)


@each_sample
def test_endless_replies_get_a_verdict(instance: Instance) -> None:
    reply = task_for(instance.task).reference_reply(instance)
    for endless in (reply * 20_000, "(" * 500_000, " \n" * 250_000 + "x", "<smiles>" * 60_000):
        is_a_score(score_reply(instance, endless[:500_000]))


@each_sample
def test_a_record_and_its_instance_are_scored_alike(instance: Instance) -> None:
    record = {
        "id": instance.id,
        "domain": "any",
        "task": instance.task,
        "question": instance.question,
        "answer": instance.answer,
        "metadata": instance.metadata,
    }
    reply = task_for(instance.task).reference_reply(instance)
    for text in (reply, "", "No", "3"):
        assert score_reply(record, text) == score_reply(instance, text)
    assert constraint_for(record) == constraint_for(instance)


@each_sample
def test_constraints_and_scores_survive_a_process_boundary(instance: Instance) -> None:
    constraint = constraint_for(instance)
    assert pickle.loads(pickle.dumps(constraint)).digest == constraint.digest
    score = score_reply(instance, "no")
    assert pickle.loads(pickle.dumps(score)) == score


def test_unknown_scorers_and_constraints_are_named_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="unknown scorer 'strikt'; did you mean 'strict'"):
        score_reply(BUNDLED[0], "", scorer="strikt")
    with pytest.raises(ConfigError, match="unknown constraint 'fromat'; did you mean 'format'"):
        constraint_for(BUNDLED[0], "fromat")  # type: ignore[arg-type]
