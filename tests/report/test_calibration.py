"""ECE and Brier follow their definitions, and a run's are computed from its stored options."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from example_runs import MANIFEST, completion, instance, request
from hypothesis import given
from hypothesis import strategies as st

from rel_batch.report.calibration import (
    Judged,
    bins_of,
    brier_score,
    calibrations,
    expected_calibration_error,
    judge,
)
from rel_batch.store import RunFolder


def logs(**shares: float) -> dict[str, float]:
    return {option: math.log(share) for option, share in shares.items()}


@pytest.mark.parametrize(
    ("logprobs", "gold", "confidence", "correct", "brier", "mass"),
    [
        (logs(yes=0.75, no=0.25), "yes", 0.75, True, 2 * 0.25**2, 1.0),
        (logs(yes=0.75, no=0.25), "no", 0.75, False, 2 * 0.75**2, 1.0),
        # Only the options' own shares count; how little they are together is told beside them.
        (logs(yes=0.03, no=0.01), "yes", 0.75, True, 2 * 0.25**2, 0.04),
        (logs(a=0.5, b=0.5), "b", 0.5, False, 0.5, 1.0),
        (logs(a=1.0), "a", 1.0, True, 0.0, 1.0),
    ],
)
def test_a_distribution_is_held_against_gold(
    logprobs: dict[str, float],
    gold: str,
    confidence: float,
    correct: bool,
    brier: float,
    mass: float,
) -> None:
    row = judge(logprobs, gold)
    assert row.correct is correct
    assert (row.confidence, row.brier, row.option_mass) == pytest.approx((confidence, brier, mass))


def test_options_that_are_next_to_impossible_are_still_compared() -> None:
    row = judge({"yes": -2000.0, "no": -2001.0}, "yes")
    assert row.confidence == pytest.approx(1 / (1 + math.exp(-1)))
    assert row.option_mass == 0.0


def test_gold_must_be_an_option() -> None:
    with pytest.raises(ValueError, match="'maybe' is none of the options"):
        judge(logs(yes=1.0), "maybe")


def rows(*pairs: tuple[float, bool]) -> list[Judged]:
    return [Judged(confidence, correct, 0.0) for confidence, correct in pairs]


@pytest.mark.parametrize(
    ("judged", "ece"),
    [
        (rows((1.0, True)), 0.0),
        (rows((1.0, False)), 1.0),
        (rows((0.5, True), (0.5, False)), 0.0),
        # Two bins: |1 - 0.85| and |0 - 0.35|, half the rows each.
        (rows((0.85, True), (0.35, False)), 0.25),
        # A confidence on a bound is in the bin below: 0.8 with 0.75, not with 0.85.
        (rows((0.8, True), (0.75, False), (0.85, True)), (2 * 0.275 + 0.15) / 3),
    ],
)
def test_ece_weighs_the_gap_of_each_bin(judged: list[Judged], ece: float) -> None:
    assert expected_calibration_error(judged) == pytest.approx(ece)


def test_brier_is_a_mean_over_rows() -> None:
    assert brier_score([Judged(1, True, 0.0), Judged(1, False, 2.0)]) == 1.0


shares = st.lists(st.floats(0.001, 1.0), min_size=2, max_size=8)


@given(st.lists(st.tuples(shares, st.integers(0, 1)), min_size=1, max_size=30))
def test_figures_stay_in_their_ranges_and_bins_hold_every_row(
    drawn: list[tuple[list[float], int]],
) -> None:
    judged = [
        judge({str(at): math.log(s / sum(some)) for at, s in enumerate(some)}, str(gold))
        for some, gold in drawn
    ]
    assert 0.0 <= expected_calibration_error(judged) <= 1.0
    assert 0.0 <= brier_score(judged) <= 2.0
    bins = bins_of(judged)
    assert sum(b.n for b in bins) == len(judged)
    assert all(b.low < b.confidence <= b.high + 1e-9 for b in bins)


def test_a_run_is_calibrated_by_arm_from_what_it_stored(tmp_path: Path) -> None:
    identity = {
        "arms": [
            {"name": "format", "constraint": "format"},
            {"name": "ranked", "constraint": "format", "decoding": "likelihood"},
        ]
    }
    run = RunFolder.create(
        tmp_path / "run",
        {**MANIFEST, "identity": identity},
        [instance(n, target=2) for n in range(2)],
        [request(n, arm=arm) for n in range(2) for arm in ("format", "ranked")],
    )
    options = {str(label): math.log(0.1) for label in range(8)}
    run.publish_part(
        0,
        [
            completion(0, arm="format"),
            completion(1, arm="format"),
            completion(0, arm="ranked", option_logprobs={**options, "2": math.log(0.3)}),
            completion(1, arm="ranked", option_logprobs={**options, "5": math.log(0.3)}),
        ],
    )
    (found,) = calibrations(run)
    assert (found.task, found.subset, found.arm, found.n) == ("REL-A1", "3x3", "ranked", 2)
    assert found.accuracy == 0.5
    assert found.option_mass == pytest.approx(1.0)
    assert found.ece == pytest.approx(abs(0.5 - 0.3))
    right, wrong = 0.7**2 + 7 * 0.1**2, 0.9**2 + 0.3**2 + 6 * 0.1**2
    assert found.brier == pytest.approx((right + wrong) / 2)


def test_a_run_without_distributions_has_no_calibration(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", MANIFEST, [instance(0)], [request(0)])
    assert calibrations(run) == ()
