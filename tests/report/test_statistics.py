"""The report's statistics: against values computed independently, by hand, and by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import bootstrap, spearmanr
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from rel_batch.report.statistics import (
    NOTHING,
    Floats,
    compare_paired,
    estimate_share,
    holm,
    majority_vote,
    mcnemar_exact,
    mean_of_estimates,
    pass_at_k,
    trend,
)

# Values computed independently.


def test_one_sample_of_each_instance_gets_wilsons_interval() -> None:
    found = estimate_share(np.array([1.0] * 31 + [0.0] * 94), single=True)
    assert found.method == "wilson"
    assert found.n == 125
    assert (found.low, found.high) == pytest.approx(proportion_confint(31, 125, method="wilson"))


def test_several_samples_get_the_bootstrap_over_instances() -> None:
    values = np.random.default_rng(1).choice([0.0, 0.25, 0.5, 1.0], size=400)
    found = estimate_share(values, single=False)
    other = bootstrap((values,), np.mean, method="percentile", n_resamples=9_999, rng=2)
    assert found.method == "bootstrap"
    assert found.value == pytest.approx(values.mean())
    # At 400 instances the widening for small n is a thousandth of the width.
    assert found.low == pytest.approx(other.confidence_interval.low, abs=0.003)
    assert found.high == pytest.approx(other.confidence_interval.high, abs=0.003)


def test_samples_of_one_instance_are_not_independent() -> None:
    instances = np.array([0.0, 1.0] * 30)
    as_instances = estimate_share(instances, single=False)
    as_rows = estimate_share(np.repeat(instances, 8), single=True)
    assert as_instances.low is not None
    assert as_rows.low is not None
    assert as_instances.low < as_rows.low


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_instances_that_all_agree_still_have_an_interval(share: float) -> None:
    found = estimate_share(np.full(20, share), single=False)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low > 0.1


def test_nothing_has_no_estimate() -> None:
    none = np.array([], np.float64)
    assert estimate_share(none, single=True) == NOTHING
    assert compare_paired(none, none, single=True).p_value is None


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (3, 0), (5, 5), (12, 3), (40, 61)])
def test_mcnemars_test_is_statsmodels(gained: int, lost: int) -> None:
    other = mcnemar([[7, lost], [gained, 9]], exact=True).pvalue if gained + lost else 1.0
    assert mcnemar_exact(gained, lost) == pytest.approx(other)


def test_a_paired_comparison_counts_gains_losses_and_their_difference() -> None:
    a = np.array([1.0] * 10 + [0.0] * 90)
    b = np.array([1.0] * 6 + [0.0] * 4 + [1.0] * 12 + [0.0] * 78)
    found = compare_paired(a, b, single=True)
    assert (found.gained, found.lost, found.difference.n) == (12, 4, 100)
    assert found.difference.value == pytest.approx(0.08)
    # By hand: 13/102 - 5/102 -+ 1.96 sqrt((13/102 + 5/102 - (8/102)^2) / 102).
    half = 1.959964 * math.sqrt((18 / 102 - (8 / 102) ** 2) / 102)
    assert found.difference.low == pytest.approx(8 / 102 - half)
    assert found.difference.high == pytest.approx(8 / 102 + half)


def test_arms_that_always_agree_differ_by_nothing_with_an_interval() -> None:
    for single in (True, False):
        found = compare_paired(np.ones(50), np.ones(50), single=single)
        assert found.p_value == 1.0
        assert found.difference.value == 0.0
        assert found.difference.low is not None
        assert found.difference.low < 0.0


def test_arms_are_compared_instance_by_instance() -> None:
    with pytest.raises(ValueError, match="not paired"):
        compare_paired(np.ones(3), np.ones(4), single=True)


def test_holms_correction_by_hand() -> None:
    # Sorted .01 .02 .03 times 3, 2, 1 is .03 .04 .03, and never falls: .03 .04 .04.
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([]) == []


@pytest.mark.parametrize(("n", "c", "k"), [(5, 0, 1), (5, 2, 1), (5, 2, 3), (6, 6, 4), (7, 1, 7)])
def test_pass_at_k_is_the_share_of_all_ways_to_draw_k(n: int, c: int, k: int) -> None:
    ways = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k([c], [n], k)[0] == pytest.approx(sum(map(any, ways)) / len(ways))


def test_pass_at_k_needs_k_samples() -> None:
    with pytest.raises(ValueError, match="pass@3"):
        pass_at_k([1], [2], 3)


@pytest.mark.parametrize(
    ("predictions", "correct", "expected", "why"),
    [
        (["2", "2", "5"], [True, True, False], True, "two of three"),
        (["2", "5", "5"], [True, False, False], False, "outvoted"),
        (["2", None, None], [True, False, False], True, "what was not read has no vote"),
        (["5", "2", "2", "5"], [False, True, True, False], False, "a tie goes to the first"),
        ([None, None], [False, False], False, "no vote"),
    ],
)
def test_the_majority_vote(
    predictions: list[str | None], correct: list[bool], expected: bool, why: str
) -> None:
    assert majority_vote(predictions, correct) is expected, why


def test_the_slope_is_the_log_odds_ratio_where_rc_has_two_levels() -> None:
    # 30 of 40 at RC 2, 10 of 40 at RC 5: the log-odds move from log 3 to -log 3 in 3 steps.
    rc = np.repeat([2.0, 5.0], 40)
    values = np.array([1.0] * 30 + [0.0] * 10 + [1.0] * 10 + [0.0] * 30)
    found = trend(rc, values, np.ones(80))
    assert found.slope.value == pytest.approx(-2 * math.log(3) / 3)
    # Its robust variance is the sum of 1 / (n p (1 - p)).
    half = 1.959964 * math.sqrt(2 / 7.5) / 3
    assert found.slope.low == pytest.approx(-2 * math.log(3) / 3 - half, rel=1e-3)
    assert (found.rho, found.rho_p) == pytest.approx(tuple(spearmanr(rc, values)))


@pytest.mark.parametrize(
    ("rc", "values", "why"),
    [
        ([2.0, 2.0, 2.0], [0.0, 1.0, 1.0], "one RC level only"),
        ([2.0, 3.0, 4.0], [1.0, 1.0, 1.0], "every instance has the same result"),
        ([2.0, 3.0, 4.0], [1.0, 1.0, 0.0], "fewer than 10 right or wrong"),
        ([2.0] * 10 + [3.0] * 10, [1.0] * 10 + [0.0] * 10, "one RC separates right from wrong"),
    ],
)
def test_no_slope_is_given_where_there_is_none(
    rc: list[float], values: list[float], why: str
) -> None:
    found = trend(np.array(rc), np.array(values), np.ones(len(rc)))
    assert found.why_no_slope == why
    assert found.slope == NOTHING


# By simulation: known truths, many repetitions, each with fewer resamples than a report's.
FEW = 499


def clustered(rng: np.random.Generator, n: int, samples: int, mean: float) -> Floats:
    """Shares of correct samples whose chance differs from instance to instance (beta)."""
    chance = rng.beta(mean * 1.5, (1 - mean) * 1.5, size=n)
    return rng.binomial(samples, chance) / samples


@pytest.mark.parametrize(("n", "samples", "mean"), [(60, 4, 0.3), (300, 4, 0.15)])
def test_the_clustered_interval_covers_the_truth_in_95_of_100(
    n: int, samples: int, mean: float
) -> None:
    rng = np.random.default_rng(5)
    found = [
        estimate_share(clustered(rng, n, samples, mean), single=False, resamples=FEW)
        for _ in range(1_000)
    ]
    covered = np.mean([e.low <= mean <= e.high for e in found if e.low is not None and e.high])
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize(("n", "share"), [(125, 0.125), (125, 0.5), (1_000, 0.05)])
def test_wilsons_interval_covers_the_truth_in_95_of_100(n: int, share: float) -> None:
    # Exactly, by summing over every count that can be seen.
    covered = 0.0
    for seen in range(n + 1):
        found = estimate_share(np.repeat([1.0, 0.0], [seen, n - seen]), single=True)
        if found.low is not None and found.high is not None and found.low <= share <= found.high:
            covered += math.comb(n, seen) * share**seen * (1 - share) ** (n - seen)
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize(("n", "shares"), [(8, (0.1, 0.3, 0.5)), (125, (0.02, 0.1, 0.5, 0.9))])
def test_the_interval_of_a_mean_of_tasks_covers_the_truth_in_95_of_100(
    n: int, shares: tuple[float, ...]
) -> None:
    rng = np.random.default_rng(10)
    truth, covered = np.mean(shares), 0
    for _ in range(2_000):
        found = mean_of_estimates(
            [estimate_share((rng.random(n) < share) * 1.0, single=True) for share in shares]
        )
        assert found.n == n * len(shares)
        covered += (
            found.low is not None and found.high is not None and found.low <= truth <= found.high
        )
    assert 0.93 <= covered / 2_000 <= 0.97


def test_a_mean_of_tasks_has_an_interval_where_all_instances_agree() -> None:
    found = mean_of_estimates([estimate_share(np.ones(6), single=True)] * 4 + [NOTHING])
    assert (found.value, found.n) == (1.0, 24)
    assert found.low is not None
    # By hand: a quarter of the square root of 4 times the square of Wilson's half-width.
    assert found.low == pytest.approx(1 - (1 - 6 / (6 + 1.959964**2)) / 2)
    assert mean_of_estimates([NOTHING]) == NOTHING


@pytest.mark.parametrize(("n", "change", "shift"), [(125, 0.2, 0.0), (300, 0.1, 0.05)])
def test_the_paired_interval_covers_the_truth_in_95_of_100(
    n: int, change: float, shift: float
) -> None:
    rng = np.random.default_rng(6)
    ups, downs = change / 2 + shift / 2, change / 2 - shift / 2
    covered: list[bool] = []
    for _ in range(1_000):
        d = rng.choice([1.0, -1.0, 0.0], p=[ups, downs, 1 - ups - downs], size=n)
        found = compare_paired((d < 0) * 1.0, (d > 0) * 1.0, single=True)
        low, high = found.difference.low, found.difference.high
        covered.append(low is not None and high is not None and low <= shift <= high)
    assert 0.93 <= np.mean(covered) <= 0.97


@pytest.mark.parametrize(("n", "samples", "mean"), [(40, 4, 0.3), (125, 1, 0.1), (125, 4, 0.02)])
def test_the_paired_test_errs_in_at_most_55_of_1000_where_there_is_no_difference(
    n: int, samples: int, mean: float
) -> None:
    rng = np.random.default_rng(7)
    found: list[bool] = []
    for _ in range(1_000):
        chance = rng.beta(mean * 1.5, (1 - mean) * 1.5, size=n)
        a, b = (rng.binomial(samples, chance) / samples for _ in range(2))
        p_value = compare_paired(a, b, single=samples == 1, resamples=FEW).p_value
        found.append(p_value is not None and p_value <= 0.05)
    assert np.mean(found) <= 0.055


@pytest.mark.parametrize("single", [True, False])
def test_the_detectable_effect_is_found_in_four_of_five_repetitions(single: bool) -> None:
    rng = np.random.default_rng(8)
    n, change = 400, 0.25
    seen = np.repeat([1.0, -1.0, 0.0], [50, 50, 300])
    effect = compare_paired((seen < 0) * 1.0, (seen > 0) * 1.0, single=True)
    assert effect.detectable is not None
    ups, downs = (change + effect.detectable) / 2, (change - effect.detectable) / 2
    found: list[bool] = []
    for _ in range(500):
        d = rng.choice([1.0, -1.0, 0.0], p=[ups, downs, 1 - change], size=n)
        after = compare_paired((d < 0) * 1.0, (d > 0) * 1.0, single=single, resamples=FEW)
        found.append(after.p_value is not None and after.p_value <= 0.05)
    assert 0.72 <= np.mean(found) <= 0.88


def test_the_slopes_interval_covers_the_truth_in_95_of_100() -> None:
    rng = np.random.default_rng(9)
    rc = np.tile(np.arange(2.0, 12.0), 15)
    chance = 1 / (1 + np.exp(-(0.5 - 0.15 * rc)))
    covered: list[bool] = []
    for _ in range(1_000):
        slope = trend(rc, rng.binomial(1, chance).astype(np.float64), np.ones(len(rc))).slope
        low, high = slope.low, slope.high
        covered.append(low is not None and high is not None and low <= -0.15 <= high)
    assert 0.93 <= np.mean(covered) <= 0.97
