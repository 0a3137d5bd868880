"""The figures of a run: every row counts, and what is not there is said."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from example_runs import completion, instance, new_run, request
from hypothesis import given, settings
from hypothesis import strategies as st
from report_runs import mixed_run, score_row
from statsmodels.stats.proportion import proportion_confint

from rel_batch.report import Group, summarise, to_json, wilson
from rel_batch.scoring import score_run


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 5000), share=st.floats(0, 1))
def test_the_interval_is_statsmodels_wilson_interval(n: int, share: float) -> None:
    successes = round(share * n)
    low, high = proportion_confint(successes, n, method="wilson")
    rate = wilson(successes, n)
    assert (rate.low, rate.high) == (pytest.approx(low, abs=1e-12), pytest.approx(high, abs=1e-12))


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 10_000), share=st.floats(0, 1))
def test_the_interval_holds_the_estimate_and_lies_between_0_and_1(n: int, share: float) -> None:
    rate = wilson(round(share * n), n)
    assert rate.low is not None
    assert rate.high is not None
    assert rate.estimate is not None
    assert 0 <= rate.low <= rate.estimate <= rate.high <= 1


def test_nothing_is_estimated_from_no_rows() -> None:
    assert wilson(0, 0).estimate is None
    assert (wilson(0, 0).low, wilson(0, 0).high) == (None, None)


def test_samples_of_an_instance_are_one_observation_of_the_interval(tmp_path: Path) -> None:
    requests = [
        request(n, sample=sample, key=f"r{n}-{sample}") for n in range(4) for sample in range(8)
    ]
    run = new_run(tmp_path / "run", requests=requests, num_instances=4)
    # Two instances are always right, two never: 16 of 32 rows, but 2 of 4 instances.
    run.publish_part(
        0,
        [
            completion(
                int(r.instance_key[1:]),
                sample=r.sample,
                request_key=r.key,
                reply="2" if r.instance_key in ("i0", "i1") else "3",
            )
            for r in requests
        ],
    )
    score_run(run)
    (group,) = summarise(run).groups
    rate = group.headline_rate
    assert (rate.successes, rate.n, rate.estimate) == (16, 32, 0.5)
    alone = wilson(16, 32)
    assert rate.low is not None
    assert alone.low is not None
    assert rate.low < alone.low
    assert group.upstream_rate is not None
    assert group.upstream_rate.low is None


def test_every_row_is_answered_truncated_or_without_a_reply(tmp_path: Path) -> None:
    statuses = ["ok", "constraint_violated", "truncated", "truncated_thinking", "too_long"]
    run = new_run(tmp_path / "run", num_instances=5)
    run.publish_part(
        0,
        [
            completion(number, status=status, reply="" if status == "too_long" else "9")
            for number, status in enumerate(statuses)
        ],
    )
    score_run(run)
    (group,) = summarise(run).groups
    assert (group.n, group.answered, group.truncated, group.errors) == (5, 2, 2, 1)
    # 9 is no choice. A truncated reply is never counted as unparsed, nor is a missing one.
    assert (group.unparsed, group.correct) == (2, 0)
    assert dict(group.statuses) == {"too_long": 1}


def test_an_error_counts_in_n_and_is_not_correct(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", num_instances=2)
    run.publish_part(0, [completion(0), completion(1, status="engine_error", reply="")])
    score_run(run)
    (group,) = summarise(run).groups
    assert group.headline_rate.estimate == 0.5


def test_what_is_missing_is_counted_and_nothing_is_assumed_about_it(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", num_instances=4)
    run.publish_part(0, [completion(0)])
    score_run(run)
    run.publish_part(0, [completion(1)])
    summary = summarise(run)
    assert (summary.planned, summary.n, summary.missing, summary.unscored) == (4, 1, 3, 1)
    assert summary.groups[0].headline_rate.n == 1


def test_a_run_without_any_row_has_groups_without_estimates(tmp_path: Path) -> None:
    (group,) = summarise(new_run(tmp_path / "run")).groups
    assert (group.planned, group.n, group.headline_rate.estimate) == (4, 0, None)


def test_a_request_that_two_parts_hold_counts_once(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", num_instances=2)
    run.publish_part(0, [completion(0, reply="2")])
    run.publish_part(0, [completion(0, reply="5"), completion(1, reply="5")])
    score_run(run)
    (group,) = summarise(run).groups
    assert (group.n, group.correct) == (2, 1)


def test_arms_come_in_the_order_of_the_plan_and_subsets_are_sorted(tmp_path: Path) -> None:
    instances = [instance(0, subset="9x9"), instance(1)]
    requests = [request(n, arm=arm) for n in (0, 1) for arm in ("none", "format")]
    run = new_run(tmp_path / "run", instances=instances, requests=requests)
    groups = [(group.arm, group.subset) for group in summarise(run).groups]
    assert groups == [("none", "3x3"), ("none", "9x9"), ("format", "3x3"), ("format", "9x9")]


def test_means_are_over_the_rows_where_the_figure_exists(tmp_path: Path) -> None:
    run = mixed_run(tmp_path / "run")
    groups = {(group.name, group.arm): group for group in summarise(run).groups}
    f1 = groups["REL-B1", "format"].f1
    assert f1 is not None
    assert (f1.n, f1.mean) == (2, 0.75)
    assert groups["REL-A1", "format"].f1 is None


def test_a_total_is_over_the_rows_of_a_domain_and_only_where_there_are_several_groups(
    tmp_path: Path,
) -> None:
    summary = summarise(mixed_run(tmp_path / "run"))
    totals = {(total.name, total.arm): total for total in summary.totals}
    assert set(totals) == {("algebra", "format"), ("algebra", "none")}
    parts = [g for g in summary.groups if g.arm == "format" and g.name.startswith("REL-A")]
    total = totals["algebra", "format"]
    for figure in ("planned", "n", "answered", "truncated", "unparsed", "correct", "upstream"):
        assert getattr(total, figure) == sum(getattr(part, figure) for part in parts)


@pytest.mark.parametrize(
    ("headline", "planned", "expected"),
    [("accuracy", 4, None), ("exact_match", 4, 0.25), ("exact_match", 2, 0.5)],
)
def test_the_completion_rate_is_of_all_that_was_planned(
    headline: str, planned: int, expected: float | None
) -> None:
    group = Group("REL-C1", "all", "format", headline, planned, 2, 2, 0, 0, 1)  # type: ignore[arg-type]
    rate = group.completion_rate
    assert (rate and rate.estimate) == expected


def test_the_scores_of_another_version_are_not_mixed_in(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", num_instances=1)
    part = run.publish_part(0, [completion(0)])
    score_run(run)
    run.publish_scores("another", part, [score_row(0, correct=False)])
    assert summarise(run).groups[0].correct == 1
    assert summarise(run, "another").groups[0].correct == 0


def test_the_json_of_a_small_run(
    tmp_path: Path, matches_golden: Callable[[str, str], bool]
) -> None:
    text = to_json(summarise(mixed_run(tmp_path / "small")))
    assert matches_golden("small.json", text + "\n")
    assert json.loads(text)["missing"] == 1


def test_a_summary_is_frozen(tmp_path: Path) -> None:
    summary = summarise(new_run(tmp_path / "run"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.unscored = 3  # type: ignore[misc]
