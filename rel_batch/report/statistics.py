"""The statistics of the report: numbers in, numbers out; reads nothing and draws nothing.

    estimate_share(np.array([0.0, 1.0, 1.0]), single=True)   # Wilson, of 3 instances
    compare_paired(a, b, single=False)                       # bootstrap, instance by instance

The unit is the instance. Values are one for each instance: 0 or 1 where each has a single sample,
else the share of its samples. So samples of one instance are never taken as independent, and n is
always a number of instances.

Surprising: resampling n instances with replacement is one multinomial draw over the distinct
values, which are few; so 9,999 resamples of 10,000 instances take milliseconds. Every bootstrap
starts from the same seed, so that a report can be made again.
"""

# scipy and statsmodels have no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportMissingImports=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rel_batch.report.summary import wilson_interval

Floats = npt.NDArray[np.float64]

RESAMPLES = 9_999
_BATCH = 1_024
# Quantiles of the normal distribution: 97.5%, and 80% for the power of a test.
_Z95 = 1.959963984540054
_Z80 = 0.8416212335729143
# A slope from fewer right, or fewer wrong, instances has an interval that nobody should believe
# (Peduzzi et al. 1996).
_LEAST_EVENTS = 10


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95% interval, the instances it is of, and how the interval was made.

    `value`, `low` and `high` are None where n is 0; `low` and `high` also where no interval
    can be had.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    method: Literal["wilson", "bootstrap", "adjusted Wald", "robust Wald", "MOVER", "none"] = "none"


NOTHING = Estimate(None, None, None, 0)


@dataclass(frozen=True, slots=True)
class Paired:
    """What an arm changes, on the instances that both have.

    Attributes:
        difference: mean of b - a over the instances.
        p_value: of the hypothesis that there is no difference; None where n is 0.
        gained, lost: instances where b is better, and where it is worse.
        detectable: the smallest true difference that a test at 5% would find in four of five
            repetitions with as many instances and as much disagreement.
    """

    difference: Estimate
    p_value: float | None
    test: Literal["McNemar", "bootstrap"]
    gained: int
    lost: int
    detectable: float | None


@dataclass(frozen=True, slots=True)
class Trend:
    """How correctness moves with RC over n instances.

    Attributes:
        rho, rho_p: Spearman's rank correlation and its p-value; None where either side is constant.
        slope: change of the log-odds of a correct reply for one more RC (logistic regression,
            interval robust to the correlation of an instance's samples).
        why_no_slope: why there is none, else "".
    """

    n: int
    rho: float | None
    rho_p: float | None
    slope: Estimate
    why_no_slope: str = ""


def estimate_share(values: Floats, *, single: bool, resamples: int = RESAMPLES) -> Estimate:
    """The mean of values in [0, 1] with its 95% interval.

    `single` says that each is one yes or no: then the interval is Wilson's. Else it is the
    bootstrap's percentile interval over instances, widened for small n as Student's t is
    (Hesterberg 2015, "expanded percentile"). Where all values are equal no resample differs, and
    the interval is Wilson's with each instance as one observation.
    """
    n = len(values)
    if n == 0:
        return NOTHING
    mean = float(np.mean(values))
    if single or np.ptp(values) == 0.0:
        return Estimate(mean, *wilson_interval(mean, n), n, "wilson")
    tail = _expanded_tail(n)
    low, high = np.quantile(_resampled_means(values, resamples), [tail, 1.0 - tail])
    return Estimate(mean, max(0.0, float(low)), min(1.0, float(high)), n, "bootstrap")


def mean_of_estimates(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates, each of equal weight; n counts all their instances.

    Its interval is put together from theirs (Zou and Donner 2008, "MOVER"), so that it has a width
    even where every instance of every group agrees.
    """
    known = [
        (e.value, e.value - e.low, e.high - e.value, e.n)
        for e in estimates
        if e.value is not None and e.low is not None and e.high is not None
    ]
    if not known:
        return NOTHING
    values, below, above, counts = zip(*known, strict=True)
    mean, k = math.fsum(values) / len(known), len(known)
    low, high = mean - math.hypot(*below) / k, mean + math.hypot(*above) / k
    return Estimate(mean, max(0.0, low), min(1.0, high), sum(counts), "MOVER")


def compare_paired(a: Floats, b: Floats, *, single: bool, resamples: int = RESAMPLES) -> Paired:
    """Compare two arms on the same instances, in the same order.

    For one yes or no each: McNemar's exact test, and Bonett and Price's adjusted Wald interval
    (2012). Else: the bootstrap of the mean difference over instances, whose symmetric interval
    excludes 0 exactly where its p-value is below 5%.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values are not paired")
    d = np.subtract(b, a)
    n = len(d)
    gained, lost = int(np.sum(d > 0)), int(np.sum(d < 0))
    if n == 0:
        return Paired(NOTHING, None, "McNemar" if single else "bootstrap", 0, 0, None)
    mean = float(np.mean(d))
    detectable = _detectable(d)
    if single:
        low, high = _adjusted_wald(gained, lost, n)
        difference = Estimate(mean, low, high, n, "adjusted Wald")
        return Paired(difference, mcnemar_exact(gained, lost), "McNemar", gained, lost, detectable)
    if np.ptp(d) == 0.0 and mean == 0.0:
        low, high = _adjusted_wald(0, 0, n)
        difference = Estimate(mean, low, high, n, "adjusted Wald")
        return Paired(difference, 1.0, "bootstrap", gained, lost, detectable)
    # As if n were n - 1, and as wide as Student's t: small samples vary more than they show.
    wider = math.sqrt(n / max(n - 1, 1)) * _t95(n) / _Z95
    away = np.abs(_resampled_means(d, resamples) - mean) * wider
    half = float(np.quantile(away, 0.95))
    p_value = float((1 + np.sum(away >= abs(mean) - 1e-12)) / (resamples + 1))
    low, high = max(-1.0, mean - half), min(1.0, mean + half)
    difference = Estimate(mean, low, high, n, "bootstrap")
    return Paired(difference, p_value, "bootstrap", gained, lost, detectable)


@functools.lru_cache(maxsize=4_096)
def mcnemar_exact(gained: int, lost: int) -> float:
    """The two-sided p-value of McNemar's exact test: are gains and losses equally likely?"""
    if gained + lost == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(gained, gained + lost, 0.5).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for being several (Holm 1979), in their order."""
    if not p_values:
        return []
    from statsmodels.stats.multitest import multipletests

    corrected: Any = multipletests(np.array(p_values), method="holm")
    return [float(p) for p in corrected[1]]


def pass_at_k(correct: Sequence[int], samples: Sequence[int], k: int) -> Floats:
    """For each instance, the chance that one of k of its samples is correct.

    Unbiased: 1 - C(n - c, k) / C(n, k) for c of n samples correct (Chen et al. 2021). Raises
    ValueError where an instance has fewer than k samples.
    """
    if any(n < k for n in samples):
        raise ValueError(f"pass@{k} needs {k} samples of every instance")
    return np.array(
        [1.0 - math.comb(n - c, k) / math.comb(n, k) for c, n in zip(correct, samples, strict=True)]
    )


def majority_vote(predictions: Sequence[Hashable | None], correct: Sequence[bool]) -> bool:
    """Whether the most frequent prediction of one instance's samples is correct.

    A reply that was not read has no vote, and of equally frequent ones the first seen counts.
    No vote at all is not correct.
    """
    votes = Counter(p for p in predictions if p is not None)
    if not votes:
        return False
    [(winner, _)] = votes.most_common(1)
    return correct[predictions.index(winner)]


def trend(rc: Floats, values: Floats, samples: Floats) -> Trend:
    """Spearman's correlation and the logistic slope of correctness on RC, over instances."""
    n = len(rc)
    if n < 3 or np.ptp(rc) == 0.0:
        return Trend(n, None, None, NOTHING, "one RC level only")
    if np.ptp(values) == 0.0:
        return Trend(n, None, None, NOTHING, "every instance has the same result")
    rho, rho_p = rank_correlation(rc, values)
    if min(np.sum(values > 0.0), np.sum(values < 1.0)) < _LEAST_EVENTS:
        return Trend(n, rho, rho_p, NOTHING, f"fewer than {_LEAST_EVENTS} right or wrong")
    if _is_separated(rc, values):
        return Trend(n, rho, rho_p, NOTHING, "one RC separates right from wrong")
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_linear_model import GLM

    successes = values * samples
    # Centred and scaled, so that the fit is as good for RC 2 to 92 as for 2 and 3.
    scale = float(np.std(rc))
    design = np.column_stack([np.ones(n), (rc - np.mean(rc)) / scale])
    model: Any = GLM(np.column_stack([successes, samples - successes]), design, family=Binomial())
    fit = model.fit(cov_type="HC1")
    slope, error = float(fit.params[1]) / scale, float(fit.bse[1]) / scale
    low, high = slope - _Z95 * error, slope + _Z95 * error
    return Trend(n, rho, rho_p, Estimate(slope, low, high, n, "robust Wald"))


def rank_correlation(a: Floats, b: Floats) -> tuple[float | None, float | None]:
    """Spearman's rho and its two-sided p-value; None where either side is constant."""
    if len(a) < 3 or np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        return None, None
    from scipy.stats import spearmanr

    found: Any = spearmanr(a, b)
    return float(found.statistic), float(found.pvalue)


def _resampled_means(values: Floats, resamples: int) -> Floats:
    """The means of so many samples of the instances, drawn with replacement."""
    levels, counts = np.unique(values, return_counts=True)
    n = len(values)
    rng = np.random.default_rng(0)
    means = np.empty(resamples)
    for start in range(0, resamples, _BATCH):
        batch = means[start : start + _BATCH]
        batch[:] = rng.multinomial(n, counts / n, size=len(batch)) @ levels / n
    return means


def _expanded_tail(n: int) -> float:
    """What to cut from each end of the bootstrap's distribution for a 95% interval."""
    from scipy.stats import norm

    return float(norm.cdf(-math.sqrt(n / max(n - 1, 1)) * _t95(n)))


def _t95(n: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, max(n - 1, 1)))


def _adjusted_wald(gained: int, lost: int, n: int) -> tuple[float, float]:
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    half = _Z95 * math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    return max(-1.0, up - down - half), min(1.0, up - down + half)


def _detectable(d: Floats) -> float:
    # One gain and one loss more than were seen, so that agreement is never taken for certain.
    n = len(d)
    spread = (float(np.sum((d - np.mean(d)) ** 2)) + 2.0) / (n + 2)
    return min(1.0, (_Z95 + _Z80) * math.sqrt(spread / n))


def _is_separated(rc: Floats, values: Floats) -> bool:
    """Whether no finite slope fits best: all right replies lie on one side of all wrong ones."""
    right, wrong = rc[values > 0.0], rc[values < 1.0]
    return bool(np.max(right) <= np.min(wrong) or np.max(wrong) <= np.min(right))
