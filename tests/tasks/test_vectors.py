"""The 280 scoring cases that were collected with the benchmark: our verdict and the reference's.

Debatable cases are decided as in the vectors; where we decide otherwise, `DECIDED` says so.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from rel_batch import score_reply

NUM_CASES = 280

# Kind of case -> (correct, parsed), where our rule differs from a debatable line.
DECIDED: dict[str, tuple[bool, bool]] = {
    # A sentence that implies a Yes is not the <Yes> that the prompt asks for.
    "C1:implicit_statement": (False, False),
}


@functools.cache
def cases(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(name="case", params=range(NUM_CASES))
def fixture_case(request: pytest.FixtureRequest, shared: Path) -> dict[str, Any]:
    return cases(shared / "vectors" / "scoring.jsonl")[request.param]


def test_the_strict_verdict_is_reached(case: dict[str, Any]) -> None:
    score = score_reply(case["instance"], case["response"])
    strict = case["strict"]
    wanted = (strict["correct"], strict["parsed"])
    if case["debatable"] or case["parsed_debatable"]:
        wanted = DECIDED.get(case["kind"], wanted)
    assert (score.correct, score.parsed) == wanted, (case["kind"], case["response"], score)
    for metric in ("precision", "recall", "f1"):
        if metric in strict and case["kind"] not in DECIDED:
            assert getattr(score, metric) == pytest.approx(strict[metric]), (case["kind"], metric)


def test_the_verdict_of_the_reference_evaluator_is_reproduced(case: dict[str, Any]) -> None:
    score = score_reply(case["instance"], case["response"], scorer="upstream")
    upstream = case["upstream"]
    assert score.correct == upstream["correct"], (case["kind"], case["response"], score)
    if "pred" in upstream and case["task"].startswith("REL-A"):
        assert score.prediction == upstream["pred"]
    for metric in ("precision", "recall", "f1"):
        if metric in upstream:
            wanted = None if upstream[metric] == -1 else pytest.approx(upstream[metric])
            assert getattr(score, metric) == wanted, (case["kind"], metric)


def test_every_line_is_tried(shared: Path) -> None:
    assert len(cases(shared / "vectors" / "scoring.jsonl")) == NUM_CASES
