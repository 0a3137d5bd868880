"""What holds for every generator: determinism, RC as asked, records that the rest accepts."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rel_batch.errors import ConfigError
from rel_batch.instances import read_instances
from rel_batch.instances.generate import generate, render_record
from rel_batch.tasks import task_for

# One small request for each task: fast, and with more than one level where a task has them.
REQUESTS: dict[str, dict[str, Any]] = {
    "REL-A1": {"rc": [2], "size": 4},
    "REL-A2": {"rc": [2], "size": 4},
    "REL-A3": {"rc": [3, 6]},
    "REL-A4": {"rc": [3, 6]},
    "REL-B1": {"rc": [2, 5], "size": 20},
    "REL-C1": {"rc": [2], "size": 6},
    "REL-C2": {"rc": [2], "size": 4},
    "REL-C3": {"rc": [1, 7]},
    "REL-C4": {"rc": [2, 6]},
}
FIELDS = ["id", "domain", "task", "question", "answer", "metadata"]


def lines(task: str, *, per_level: int = 4, seed: int = 5, **request: Any) -> list[str]:
    request = request or REQUESTS[task]
    return [
        render_record(record)
        for record in generate(task, per_level=per_level, seed=seed, **request)
    ]


@pytest.mark.parametrize("task", REQUESTS)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(task: str) -> None:
    assert lines(task) == lines(task)
    assert not set(lines(task)) & set(lines(task, seed=6))


@pytest.mark.parametrize("task", REQUESTS)
def test_a_record_does_not_depend_on_how_many_are_asked_for(task: str) -> None:
    request = {**REQUESTS[task], "rc": REQUESTS[task]["rc"][:1]}
    assert lines(task, per_level=3, **request) == lines(task, per_level=4, **request)[:3]


@pytest.mark.parametrize("task", REQUESTS)
def test_records_stream(task: str) -> None:
    request = {**REQUESTS[task], "per_level": 1_000_000, "seed": 1}
    assert len(list(islice(generate(task, **request), 2))) == 2


@pytest.mark.parametrize("task", REQUESTS)
def test_the_reader_and_the_task_accept_each_record(task: str, tmp_path: Path) -> None:
    written = lines(task)
    file = tmp_path / f"{task}_fresh.jsonl"
    file.write_text("".join(line + "\n" for line in written), encoding="ascii")
    instances = read_instances(file)
    assert len(instances) == len(written)
    assert len({instance.key for instance in instances}) == len(written)
    assert len({instance.question for instance in instances}) == len(written)
    for instance in instances:
        reply = task_for(task).reference_reply(instance)
        assert task_for(task).score(instance, reply, truncated=False).verdict == "correct"
        assert task_for(task).score(instance, "", truncated=False).verdict != "correct"


@pytest.mark.parametrize("task", REQUESTS)
def test_records_have_the_released_fields_and_a_certificate(task: str) -> None:
    for record in generate(task, per_level=2, seed=1, **REQUESTS[task]):
        assert list(record) == FIELDS
        assert record["task"] == task
        assert record["metadata"]["certificate"]


@pytest.mark.parametrize("task", REQUESTS)
def test_the_rc_is_as_asked(task: str, tmp_path: Path) -> None:
    file = tmp_path / "fresh.jsonl"
    file.write_text("".join(line + "\n" for line in lines(task)), encoding="ascii")
    found = [instance.rc for instance in read_instances(file)]
    asked = [rc for rc in REQUESTS[task]["rc"] for _ in range(4)]
    if task == "REL-B1":  # a No instance has no homoplastic taxa
        asked = [rc if i % 2 == 0 else 0 for i, rc in enumerate(asked)]
    assert found == asked


@pytest.mark.parametrize(("task", "yes"), [("REL-B1", "yes"), ("REL-C1", "Yes")])
def test_yes_and_no_are_balanced_at_every_level(task: str, yes: str) -> None:
    labels = [record["answer"]["label"] for record in generate(task, per_level=6, seed=1)]
    assert labels.count(yes) == 3


@pytest.mark.parametrize(
    ("task", "request_", "why"),
    [
        ("REL-A9", {}, "did you mean"),
        ("REL-A3", {"per_level": 0}, "per_level is 0"),
        ("REL-A3", {"hold": "entitees"}, "did you mean 'entities'"),
        ("REL-A3", {"hold": "entities"}, "its RC is the size of the matrix"),
        ("REL-A3", {"rc": [2]}, "from 3 to 30"),
        ("REL-A3", {"rc": [3, 31]}, "from 3 to 30"),
        ("REL-A3", {"rc": [3], "size": 5}, "contradicts"),
        ("REL-A1", {"rc": [3]}, "always 2"),
        ("REL-A1", {"size": 2}, "from 3 to 30"),
        ("REL-B1", {"rc": [1]}, "do not fit"),
        ("REL-B1", {"rc": [8], "size": 20}, "at least 28 taxa"),
        ("REL-B1", {"size": 500}, "from 8 to 200"),
        ("REL-C1", {"rc": [4]}, "always 2"),
        ("REL-C1", {"size": 61}, "from 3 to 60"),
        ("REL-C2", {"size": 2}, "from 3 to 50"),
        ("REL-C3", {"rc": [0]}, "from 1 to 150"),
        ("REL-C3", {"hold": "length"}, "hold entities"),
        ("REL-C3", {"rc": [5], "size": 11}, "the RC can be one of"),
        ("REL-C4", {"rc": [1]}, "from 2 to 60"),
        ("REL-C4", {"hold": "entities"}, "its RC is the number of molecules"),
    ],
)
def test_what_cannot_be_made_is_refused_by_the_call_itself(
    task: str, request_: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        generate(task, **{"per_level": 1, "seed": 1, **request_})
    assert why in str(caught.value)


def test_entities_are_held_while_the_rc_varies() -> None:
    taxa = generate("REL-B1", rc=[2, 3, 6], per_level=2, seed=1, hold="entities")
    assert {record["question"].count(">") for record in taxa} == {24}
    isomers = generate("REL-C3", rc=[2, 3, 12], per_level=2, seed=1, hold="entities")
    assert len({len(record["answer"]["molecules"]) for record in isomers}) == 1
