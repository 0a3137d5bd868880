"""Runs with scores made by hand: every status, several tasks and arms, one missing row."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from example_runs import completion, instance, new_run, request

from rel_batch.records import SCORING_VERSION, Instance
from rel_batch.store import RunFolder, ScoreRow


def score_row(
    number: int, *, correct: bool = True, arm: str = "format", **changes: Any
) -> ScoreRow:
    row = ScoreRow(
        request_key=f"r{number}-{arm}",
        instance_key=f"i{number}",
        task="REL-A1",
        subset="3x3",
        arm=arm,
        sample=0,
        rc=2,
        status="ok",
        verdict="correct" if correct else "incorrect",
        correct=correct,
        parsed=True,
        failure=None if correct else "wrong_label",
        precision=None,
        recall=None,
        f1=None,
        prediction="2",
        overlap=None,
        upstream_correct=correct,
        upstream_prediction="2",
    )
    return dataclasses.replace(row, **changes)


UNPARSED: dict[str, Any] = {
    "verdict": "unparsed",
    "correct": False,
    "parsed": False,
    "failure": "undecided",
    "prediction": None,
    "upstream_correct": False,
}


def mixed_run(path: Path) -> RunFolder:
    """Two arms on REL-A1 (3x3, 9x9), REL-B1 and REL-C1, with scores made by hand."""

    def of_task(one: Instance, task: str, subset: str, rc: int) -> Instance:
        return dataclasses.replace(one, task=task, subset=subset, rc=rc)

    instances = [instance(n) for n in range(4)] + [instance(n, subset="9x9") for n in range(4, 6)]
    instances += [of_task(instance(n), "REL-B1", "001", 5) for n in range(6, 9)]
    instances += [of_task(instance(n), "REL-C1", "all", 2) for n in range(9, 11)]
    arms = ("format", "none")
    tasks = [(one.task, one.subset, one.rc) for one in instances]
    requests = [
        request(n, arm=arm, task=task) for arm in arms for n, (task, *_) in enumerate(tasks)
    ]
    run = new_run(path, instances=instances, requests=requests)
    changes: dict[tuple[int, str], dict[str, Any]] = {
        (0, "none"): UNPARSED,
        (1, "none"): UNPARSED | {"status": "truncated", "failure": "truncated"},
        (2, "none"): UNPARSED
        | {"status": "too_long", "failure": "too_long", "upstream_correct": None},
        (3, "format"): UNPARSED | {"status": "truncated_thinking", "failure": "truncated"},
        (5, "none"): {"correct": False, "verdict": "incorrect", "failure": "wrong_label"},
        (6, "format"): {"precision": 1.0, "recall": 1.0, "f1": 1.0},
        (7, "format"): {
            "precision": 1.0,
            "recall": 1 / 3,
            "f1": 0.5,
            "correct": False,
            "verdict": "incorrect",
            "failure": "missing_taxa",
        },
        (6, "none"): {"precision": 1.0, "recall": 1.0, "f1": 1.0},
        (7, "none"): UNPARSED | {"precision": 0.0, "recall": 0.0, "f1": 0.0},
    }
    rows = [
        score_row(
            n, arm=arm, **({"task": task, "subset": subset, "rc": rc} | changes.get((n, arm), {}))
        )
        for arm in arms
        for n, (task, subset, rc) in enumerate(tasks)
        if (n, arm) != (10, "none")
    ]
    part = run.publish_part(
        0,
        [
            completion(int(row.instance_key[1:]), arm=row.arm, task=row.task, status=row.status)
            for row in rows
        ],
    )
    run.publish_scores(SCORING_VERSION, part, rows)
    return run
