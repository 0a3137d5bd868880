"""From the scores of a run to the numbers of its table, in bounded memory.

    summary = summarise(RunFolder.open(path))
    summary.groups[0].headline_rate     # Rate(successes=31, n=125, estimate=0.248, ...)

Every rate is of all rows of its group, `n`: a truncated, unparsed or failed row is in the
denominator and is not correct. The task completion rate is of all *planned* rows, so that what
is missing counts as not completed. Surprising: `unparsed` counts finished replies that could not
be read; a reply that was cut is in `truncated` alone, even where it could not be read either.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from rel_batch.constraints import ASSISTED
from rel_batch.records import SCORING_VERSION, STATUSES_WITHOUT_REPLY, Status
from rel_batch.report.calibration import Calibration, calibration_json, calibrations
from rel_batch.store import RunFolder, ScoreRow
from rel_batch.tasks import task_for

Headline = Literal["accuracy", "exact_match", "correct"]
TRUNCATED: frozenset[Status] = frozenset({"truncated", "truncated_thinking"})

# The 97.5% quantile of the normal distribution.
_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its n and its 95% interval, which is None where there is none; all None where n
    is 0."""

    successes: int
    n: int
    estimate: float | None
    low: float | None
    high: float | None


def wilson(successes: int, n: int) -> Rate:
    """The share `successes / n` with its 95% Wilson score interval (Wilson 1927).

    >>> rate = wilson(1, 10)
    >>> round(rate.low, 4), round(rate.high, 4)
    (0.0179, 0.4042)
    """
    if n == 0:
        return Rate(successes, n, None, None, None)
    return Rate(successes, n, successes / n, *wilson_interval(successes / n, n))


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """The ends of the 95% Wilson score interval of a share of n > 0."""
    z2 = _Z95 * _Z95
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    # At the ends the bound is exact; rounding must not move it inside.
    low = 0.0 if share == 0.0 else max(0.0, centre - half)
    high = 1.0 if share == 1.0 else min(1.0, centre + half)
    return low, high


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over the n rows where the figure exists."""

    n: int
    mean: float


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of one task and subset under one arm, or of a domain's rows together.

    Attributes:
        name: the task, or the domain of a total.
        subset: the subset; "" for a total.
        planned, n: requests planned, and rows that are there and scored.
        answered: rows with a finished reply; with `truncated` and `statuses` they make up n.
        statuses: rows without a reply, by status, where there are any.
        precision, recall, f1: means over the rows whose gold is a set.
        overlap: REL-C2 on request: mean share of gold's atoms in the common substructure.
        upstream: rows that the reference evaluator's rules call correct; None if not asked.
        audited: rows that are correct by audited gold; None if not asked.
        audited_differs: rows on which strict and audited disagree.
        interval: 95% interval of the headline over instances, where one has several samples.
    """

    name: str
    subset: str
    arm: str
    headline: Headline
    planned: int
    n: int
    answered: int
    truncated: int
    unparsed: int
    correct: int
    statuses: Mapping[str, int] = field(default_factory=dict[str, int])
    precision: Mean | None = None
    recall: Mean | None = None
    f1: Mean | None = None
    overlap: Mean | None = None
    upstream: int | None = None
    audited: int | None = None
    audited_differs: int = 0
    interval: tuple[float, float] | None = None

    @property
    def missing(self) -> int:
        return self.planned - self.n

    @property
    def errors(self) -> int:
        return sum(self.statuses.values())

    @property
    def headline_rate(self) -> Rate:
        """Accuracy or exact match. Samples of one instance are not taken as independent."""
        rate = wilson(self.correct, self.n)
        if self.interval is None:
            return rate
        low, high = self.interval
        return replace(rate, low=low, high=high)

    @property
    def completion_rate(self) -> Rate | None:
        """Of all that was planned, how much met every requirement; None for accuracy tasks."""
        return None if self.headline == "accuracy" else self._rate(self.correct, self.planned)

    @property
    def upstream_rate(self) -> Rate | None:
        return None if self.upstream is None else self._rate(self.upstream, self.n)

    @property
    def audited_rate(self) -> Rate | None:
        return None if self.audited is None else self._rate(self.audited, self.n)

    def _rate(self, successes: int, n: int) -> Rate:
        """Wilson's, but without an interval where the rows are not independent."""
        rate = wilson(successes, n)
        return rate if self.interval is None else replace(rate, low=None, high=None)


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers.

    Attributes:
        run: the folder's name.
        groups: by arm (in the order of the plan), then task, then subset.
        totals: the rows of a domain under one arm taken together, where it has several groups:
            a mean over rows, not over tasks.
        unscored: rows that are there but have no scores of this version yet.
        samples: samples of each instance under one arm.
        assisted: the arms whose constraint hands over a part of the answer; they have no totals.
        calibration: of the arms with a distribution over options, by task, subset and arm.
    """

    run: str
    version: str
    groups: tuple[Group, ...]
    totals: tuple[Group, ...]
    unscored: int
    samples: int
    assisted: frozenset[str] = frozenset()
    calibration: tuple[Calibration, ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(group.arm for group in self.groups))

    @property
    def planned(self) -> int:
        return sum(group.planned for group in self.groups)

    @property
    def n(self) -> int:
        return sum(group.n for group in self.groups)

    @property
    def missing(self) -> int:
        return self.planned - self.n


def summarise(run: RunFolder, version: str = SCORING_VERSION) -> Summary:
    """Count a run's scores of `version`, part by part. Raises StoreError.

    Rows that are missing, or not scored yet, are counted and nothing is assumed about them.
    """
    planned = run.count_planned()
    tallies: dict[tuple[str, str, str], _Tally] = {key: _Tally() for key in planned}
    samples = 1
    for row in run.iter_scores(version):
        tallies.setdefault((row.task, row.subset, row.arm), _Tally()).add(row)
        samples = max(samples, row.sample + 1)
    arms = list(dict.fromkeys(arm for _, _, arm in tallies))
    groups: list[Group] = []
    totals: list[Group] = []
    assisted = _assisted_arms(run, arms)
    for arm in arms:
        domains: dict[str, list[tuple[str, str, str]]] = {}
        for key in sorted(key for key in tallies if key[2] == arm):
            task = task_for(key[0])
            groups.append(tallies[key].group(*key, task.headline, planned[key]))
            domains.setdefault(task.domain, []).append(key)
        for domain, keys in domains.items():
            if len(keys) > 1 and arm not in assisted:
                total = _Tally.of(tallies[key] for key in keys)
                headlines: set[Headline] = {task_for(task).headline for task, _, _ in keys}
                headline: Headline = headlines.pop() if len(headlines) == 1 else "correct"
                count = sum(planned[key] for key in keys)
                totals.append(total.group(domain, "", arm, headline, count))
    return Summary(
        run=run.path.resolve().name,
        version=version,
        groups=tuple(groups),
        totals=tuple(totals),
        unscored=run.count_rows(run.unscored_parts(version)),
        samples=samples,
        assisted=assisted,
        calibration=calibrations(run),
    )


def _assisted_arms(run: RunFolder, arms: Iterable[str]) -> frozenset[str]:
    settings: list[dict[str, Any]] = run.manifest.get("identity", {}).get("arms", [])
    constraints = {str(arm.get("name")): str(arm.get("constraint")) for arm in settings}
    return frozenset(arm for arm in arms if constraints.get(arm, arm) in ASSISTED)


def to_json(summary: Summary) -> str:
    """The summary as JSON text: every count, every rate with its n and its interval."""
    value = {
        "run": summary.run,
        "scoring_version": summary.version,
        "samples": summary.samples,
        "planned": summary.planned,
        "n": summary.n,
        "missing": summary.missing,
        "unscored": summary.unscored,
        "assisted_arms": sorted(summary.assisted),
        "groups": [_group_json(group, "task") for group in summary.groups],
        "totals": [_group_json(group, "domain") for group in summary.totals],
        "calibration": [calibration_json(one) for one in summary.calibration],
    }
    return json.dumps(value, indent=2)


def _group_json(group: Group, name: str) -> dict[str, Any]:
    completion, upstream = group.completion_rate, group.upstream_rate
    return {
        name: group.name,
        **({"subset": group.subset} if name == "task" else {}),
        "arm": group.arm,
        "planned": group.planned,
        "n": group.n,
        "missing": group.missing,
        "answered": group.answered,
        "truncated": group.truncated,
        "unparsed": group.unparsed,
        "without_reply": dict(group.statuses),
        group.headline: asdict(group.headline_rate),
        "completion_rate": completion and asdict(completion),
        "precision": group.precision and asdict(group.precision),
        "recall": group.recall and asdict(group.recall),
        "f1": group.f1 and asdict(group.f1),
        "overlap": group.overlap and asdict(group.overlap),
        "upstream": upstream and asdict(upstream),
        **_audited_json(group),
    }


def _audited_json(group: Group) -> dict[str, Any]:
    rate = group.audited_rate
    return {} if rate is None else {"audited": {**asdict(rate), "differs": group.audited_differs}}


_MEANS = ("precision", "recall", "f1", "overlap")


class _Tally:
    """Running counts of one group."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.sums: dict[str, float] = dict.fromkeys(_MEANS, 0.0)
        # Correct rows and all rows of each instance.
        self.instances: dict[str, tuple[int, int]] = {}

    @classmethod
    def of(cls, tallies: Iterable[_Tally]) -> _Tally:
        total = cls()
        for tally in tallies:
            total.counts.update(tally.counts)
            total.statuses.update(tally.statuses)
            total.instances.update(tally.instances)
            for name in _MEANS:
                total.sums[name] += tally.sums[name]
        return total

    def add(self, row: ScoreRow) -> None:
        counts = self.counts
        counts["n"] += 1
        counts["correct"] += row.correct
        correct, samples = self.instances.get(row.instance_key, (0, 0))
        self.instances[row.instance_key] = (correct + row.correct, samples + 1)
        if row.status in STATUSES_WITHOUT_REPLY:
            self.statuses[row.status] += 1
        elif row.status in TRUNCATED:
            counts["truncated"] += 1
        else:
            counts["answered"] += 1
            counts["unparsed"] += not row.parsed
        if row.upstream_correct is not None:
            counts["upstream_asked"] += 1
            counts["upstream"] += row.upstream_correct
        if row.audited_correct is not None:
            counts["audited_asked"] += 1
            counts["audited"] += row.audited_correct
            counts["audited_differs"] += row.audited_correct != row.correct
        for name in _MEANS:
            value: float | None = getattr(row, name)
            if value is not None:
                counts[name] += 1
                self.sums[name] += value

    def group(self, name: str, subset: str, arm: str, headline: Headline, planned: int) -> Group:
        counts = self.counts
        means = {
            figure: Mean(counts[figure], self.sums[figure] / counts[figure])
            for figure in _MEANS
            if counts[figure]
        }
        return Group(
            name=name,
            subset=subset,
            arm=arm,
            headline=headline,
            planned=planned,
            n=counts["n"],
            answered=counts["answered"],
            truncated=counts["truncated"],
            unparsed=counts["unparsed"],
            correct=counts["correct"],
            statuses=dict(sorted(self.statuses.items())),
            upstream=counts["upstream"] if counts["upstream_asked"] else None,
            audited=counts["audited"] if counts["audited_asked"] else None,
            audited_differs=counts["audited_differs"],
            interval=self._interval(),
            **means,
        )

    def _interval(self) -> tuple[float, float] | None:
        """The bootstrap's over instances; None where each has one sample, and Wilson's will do."""
        if all(samples == 1 for _, samples in self.instances.values()):
            return None
        import numpy as np

        from rel_batch.report.statistics import estimate_share  # which needs this module

        shares = [correct / samples for correct, samples in self.instances.values()]
        found = estimate_share(np.array(shares, np.float64), single=False)
        return None if found.low is None or found.high is None else (found.low, found.high)
