"""The second pass gives every row one score, wherever and however often it runs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from example_runs import completion, instance, new_run, request

import rel_batch.scoring
from rel_batch.errors import StoreError
from rel_batch.records import SCORING_VERSION, STATUSES, STATUSES_WITHOUT_REPLY, Score
from rel_batch.scoring import Counts, PartTally, score_completion, score_part, score_run
from rel_batch.store import RunFolder, ScoreRow


def scores(run: RunFolder) -> list[ScoreRow]:
    return list(run.iter_scores(SCORING_VERSION))


def score_files(run: RunFolder) -> dict[str, int]:
    folder = run.path / "scores" / SCORING_VERSION
    return {path.name: path.stat().st_mtime_ns for path in sorted(folder.iterdir())}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Four instances whose gold is 2: right, wrong, unreadable, not generated yet."""
    run = new_run(tmp_path / "run")
    run.publish_part(0, [completion(0, reply="2"), completion(1, reply="3")])
    run.publish_part(0, [completion(2, reply="no idea")])
    return run


@pytest.mark.parametrize(
    ("status", "reply", "verdict", "failure", "upstream"),
    [
        ("ok", "2", "correct", None, True),
        ("ok", "Answer 3", "incorrect", "wrong_choice", False),
        ("ok", "", "unparsed", "no_choice", False),
        ("constraint_violated", "2", "correct", None, True),
        ("truncated", "Answer 2 is what I", "unparsed", "truncated", True),
        ("truncated_thinking", "<think>2, or", "unparsed", "truncated", True),
        ("too_long", "", "unparsed", "too_long", None),
        ("constraint_rejected", "", "unparsed", "constraint_rejected", None),
        ("engine_error", "", "unparsed", "engine_error", None),
    ],
)
def test_a_row_is_scored_by_its_status_and_reply(
    status: Any, reply: str, verdict: str, failure: str | None, upstream: bool | None
) -> None:
    finish = {"truncated": "length", "truncated_thinking": "length"}.get(status, "stop")
    done = completion(
        0,
        status=status,
        reply=reply,
        finish_reason=None if status in STATUSES_WITHOUT_REPLY else finish,
    )
    row = score_completion(instance(0), done)
    assert (row.status, row.verdict, row.upstream_correct) == (status, verdict, upstream)
    assert (row.failure, row.correct) == (failure, verdict == "correct")


@pytest.mark.parametrize("status", STATUSES)
def test_a_score_has_what_a_table_groups_by(status: Any) -> None:
    done = completion(3, status=status, arm="none", sample=2)
    row = score_completion(instance(3, subset="9x9"), done)
    assert (row.request_key, row.instance_key, row.task) == ("r3-none", "i3", "REL-A1")
    assert (row.subset, row.arm, row.sample, row.rc) == ("9x9", "none", 2, 2)


def test_an_error_is_never_a_reply_even_where_upstream_would_guess() -> None:
    """The reference scorer reads an empty reply as panel 0."""
    done = completion(0, status="too_long", reply="", finish_reason=None)
    row = score_completion(instance(0, target=0), done)
    assert (row.upstream_correct, row.upstream_prediction) == (None, None)
    assert row.correct is False


def test_predictions_are_json() -> None:
    row = score_completion(instance(0), completion(0, reply="2"))
    assert row.prediction is not None
    assert json.loads(row.prediction) == 2


def test_without_upstream_there_is_no_upstream_verdict() -> None:
    row = score_completion(instance(0), completion(0), upstream=False)
    assert (row.correct, row.upstream_correct, row.upstream_prediction) == (True, None, None)


def test_scores_follow_the_rows(run: RunFolder) -> None:
    tally = score_run(run)
    assert [row.verdict for row in scores(run)] == ["correct", "incorrect", "unparsed"]
    assert tally == PartTally({"REL-A1": Counts(rows=3, correct=1, unparsed=1, truncated=0)})
    assert list(score_files(run)) == [part.name for part in run.completion_parts()]


def test_only_what_is_missing_is_scored(run: RunFolder) -> None:
    score_run(run)
    before = score_files(run)
    part = run.publish_part(0, [completion(3)])
    seen: list[tuple[int, int, int]] = []
    score_run(run, on_progress=lambda done, total, tally: seen.append((done, total, tally.rows)))
    after = score_files(run)
    assert seen == [(1, 1, 1)]
    assert after.pop(part.name)
    assert after == before


def test_scoring_again_gives_the_same_scores(run: RunFolder) -> None:
    score_run(run)
    first = scores(run)
    shutil.rmtree(run.path / "scores")
    score_run(run)
    assert scores(run) == first


def test_another_scoring_version_lies_beside_the_old(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_run(run)
    before = score_files(run)
    monkeypatch.setattr(rel_batch.scoring, "SCORING_VERSION", "next")
    score_run(run)
    assert score_files(run) == before
    assert sorted(path.name for path in (run.path / "scores").iterdir()) == [
        SCORING_VERSION,
        "next",
    ]


def test_parts_without_overlap_are_scored_again_when_it_is_asked_for(run: RunFolder) -> None:
    score_run(run)
    assert score_run(run, overlap=True).rows == 3
    assert score_run(run, overlap=True).rows == 0
    assert score_run(run).rows == 0


def test_scores_of_a_part_that_was_moved_away_do_not_count_for_its_successor(
    run: RunFolder,
) -> None:
    score_run(run)
    last = run.completion_parts()[-1]
    last.unlink()
    assert run.publish_part(0, [completion(2, reply="2")]) == last
    assert [row.request_key for row in scores(run)] == ["r0-format", "r1-format"]
    score_run(run)
    assert [row.correct for row in scores(run)] == [True, False, True]


def test_a_part_can_be_scored_in_another_process(run: RunFolder) -> None:
    parts = run.completion_parts()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        tallies = [pool.submit(score_part, run.path, part).result() for part in parts]
    assert sum(tallies, PartTally()).rows == 3
    assert len(scores(run)) == 3


def test_a_tally_adds_up_by_task_and_can_be_pickled() -> None:
    one = PartTally({"REL-A1": Counts(2, 1, 0, 1)})
    two = PartTally({"REL-A1": Counts(1, 1, 0, 0), "REL-C1": Counts(5, 0, 4, 1)})
    total = pickle.loads(pickle.dumps(one + two))
    assert total == PartTally({"REL-A1": Counts(3, 2, 0, 1), "REL-C1": Counts(5, 0, 4, 1)})
    assert (total.rows, total.correct, total.unparsed, total.truncated) == (8, 2, 4, 2)


def test_a_bug_in_a_scorer_is_not_swallowed_and_names_the_request(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Score:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(rel_batch.scoring, "score_reply", broken)
    with pytest.raises(RuntimeError, match="request r0-format") as raised:
        score_run(run)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert score_files(run) == {}


def test_a_part_of_another_run_is_an_error(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", instances=[instance(0)], requests=[request(0)])
    run.publish_part(0, [completion(9)])
    with pytest.raises(StoreError, match="has a row of instance i9"):
        score_run(run)


def test_another_run_at_the_same_path_is_scored_with_its_own_instances(tmp_path: Path) -> None:
    for target in (2, 3):
        run = new_run(tmp_path / "run", instances=[instance(0, target=target)])
        run.publish_part(0, [completion(0, reply="3")])
        assert score_run(run).correct == (target == 3)
        shutil.rmtree(run.path)


@pytest.mark.parametrize("module", ["rel_batch.scoring", "rel_batch.report"])
def test_scoring_and_reporting_load_no_engine(module: str) -> None:
    script = (
        f"import sys, {module}\n"
        "print([m for m in ('vllm', 'torch', 'transformers', 'pandas') if m in sys.modules])"
    )
    root = Path(rel_batch.scoring.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
