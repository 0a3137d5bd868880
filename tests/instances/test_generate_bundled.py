"""The bundled files are what their generators write."""

from __future__ import annotations

from collections import Counter

from rel_batch.instances import read_instances
from rel_batch.instances.generate.bundled import FOLDER, render_files
from rel_batch.tasks import TASKS, task_for


def test_the_bundled_files_are_byte_for_byte_what_the_generators_write() -> None:
    lying_there = {path.name: path.read_text(encoding="ascii") for path in FOLDER.iterdir()}
    assert lying_there == dict(render_files())


def test_each_task_has_at_least_six_instances() -> None:
    counts = Counter(instance.task for instance in read_instances("bundled"))
    assert {task: count for task, count in counts.items() if count < 6} == {}
    assert set(counts) == set(TASKS)


def test_every_reference_reply_is_admitted_and_correct() -> None:
    for instance in read_instances("bundled"):
        task = task_for(instance.task)
        reply = task.reference_reply(instance)
        assert task.constraint(instance, "format").matches(reply), instance.id
        assert task.score(instance, reply, truncated=False).verdict == "correct", instance.id


def test_prompts_are_short() -> None:
    # At 0.4 tokens a character (measured: Gemma's tokenizer on an alignment), 1,500 tokens.
    longest = {i.task: len(i.question) for i in read_instances("bundled") if i.task == "REL-B1"}
    assert longest["REL-B1"] < 3_500
