"""What a report is made of: the rows of one run, or of several, read once.

    evidence = read_evidence([RunFolder.open(path)])
    evidence.rows[0].verdict, evidence.arms[evidence.rows[0].arm].label

An arm of one run is called by its name, of several runs `run/arm`. Texts are clipped to what a
person reads of them and wait on disk (`texts.py`); everything that is counted is counted before,
so memory is some hundred bytes a row.

Surprising: whether an unconstrained reply would have been admitted by the constraint of another
arm is asked here, because here alone a question is at hand in full.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from rel_batch.constraints import ASSISTED, ASSISTED_MARK, KINDS
from rel_batch.records import (
    SCORING_VERSION,
    STATUSES_WITHOUT_REPLY,
    Completion,
    Instance,
    Status,
    Verdict,
)
from rel_batch.report.baselines import BaselineRow, read_baselines
from rel_batch.report.calibration import Calibration, calibrations
from rel_batch.report.texts import Texts
from rel_batch.store import RunFolder, ScoreRow
from rel_batch.tasks import task_for

_QUESTION_CHARS = 6_000
_REPLY_CHARS = 4_000
_JSON_CHARS = 2_000
_NOT_SHOWN = ("output_token_ids", "token_logprobs", "token_ranks", "option_logprobs")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run's manifest says, for people; "" where it does not say."""

    name: str
    model: str
    commit: str
    engine: str
    backend: str
    versions: Mapping[str, str]
    planned: int
    unscored: int


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of decoding in one run; `settings` are the arm's own, as in the config."""

    label: str
    run: int
    name: str
    constraint: str
    samples: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """An instance as a reader of the report sees it; `texts` is the place of prompt and gold."""

    key: str
    id: str
    task: str
    subset: str
    rc: int
    num_entities: int
    texts: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What is known of a reply beside its verdict.

    Attributes:
        texts: the place of its texts.
        whitespace, characters: of the whole reply.
        admitted: for an unconstrained reply, the constraint kinds of other arms that admit it.
        overruled_share, logprob_cost: how often the constraint overruled the model, and what
            that cost in log-probability; None where it was not measured.
    """

    texts: int
    whitespace: int
    characters: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    num_thought_tokens: int
    latency_s: float
    overruled_share: float | None
    logprob_cost: float | None
    backend: str | None
    compile_s: float | None
    admitted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowTexts:
    """What the page shows of a row; `prediction` is JSON text."""

    reply: str = ""
    thought: str = ""
    error: str = ""
    prediction: str | None = None


@dataclass(slots=True)
class Row:
    """One scored completion. `question` and `arm` are positions in the evidence.

    `vote` is a number that equal predictions share; None where nothing was read.
    """

    question: int
    arm: int
    sample: int
    status: Status
    verdict: Verdict
    failure: str | None
    precision: float | None
    recall: float | None
    f1: float | None
    vote: int | None
    upstream_correct: bool | None
    audited_correct: bool | None
    generation: Generation | None = None

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"

    @property
    def truncated(self) -> bool:
        return self.status in ("truncated", "truncated_thinking")

    @property
    def has_reply(self) -> bool:
        return self.status not in STATUSES_WITHOUT_REPLY

    @property
    def unparsed(self) -> bool:
        """A finished reply that could not be read."""
        return self.verdict == "unparsed" and self.has_reply and not self.truncated


@dataclass(frozen=True, slots=True)
class Evidence:
    """All rows of some runs.

    Attributes:
        rows: by question, arm and sample.
        planned: requests planned for each (arm, task, subset).
        calibrations: of the arms that have a distribution over options, with the arm's position.
        baselines: what shortcuts that need no model score on the runs' instances.
    """

    runs: tuple[RunFacts, ...]
    arms: tuple[Arm, ...]
    questions: tuple[Question, ...]
    rows: tuple[Row, ...]
    planned: Mapping[tuple[int, str, str], int]
    calibrations: tuple[tuple[int, Calibration], ...] = ()
    baselines: tuple[BaselineRow, ...] = ()
    texts: Texts = field(default_factory=Texts, repr=False, compare=False)

    def prompt_and_gold(self, question: int) -> tuple[str, str]:
        """The texts of the question at that position; gold is JSON text."""
        place = self.questions[question].texts
        return ("", "") if place is None else tuple(self.texts.read(place))

    def texts_of(self, row: Row) -> RowTexts:
        """The texts of a row."""
        return RowTexts(*self.texts.read(row.generation.texts)) if row.generation else RowTexts()

    def by_cell(self) -> dict[tuple[str, int], dict[int, list[Row]]]:
        """The rows of each (task, arm), by question."""
        cells: dict[tuple[str, int], dict[int, list[Row]]] = {}
        for row in self.rows:
            cell = cells.setdefault((self.questions[row.question].task, row.arm), {})
            cell.setdefault(row.question, []).append(row)
        return cells


@dataclass
class _Reading:
    """The evidence while it is being read."""

    arms: list[Arm] = field(default_factory=list[Arm])
    places: dict[str, int] = field(default_factory=dict[str, int])
    questions: list[Question] = field(default_factory=list[Question])
    rows: list[Row] = field(default_factory=list[Row])
    planned: Counter[tuple[int, str, str]] = field(default_factory=Counter[tuple[int, str, str]])
    calibrations: list[tuple[int, Calibration]] = field(
        default_factory=list[tuple[int, Calibration]]
    )
    baselines: dict[BaselineRow, None] = field(default_factory=dict[BaselineRow, None])
    texts: Texts = field(default_factory=Texts)


def read_evidence(
    runs: Sequence[RunFolder], *, texts: bool = True, version: str = SCORING_VERSION
) -> Evidence:
    """Read the scored rows of runs; without `texts` only what is needed to compare them.

    Raises StoreError.
    """
    names = _distinct_names([run.path.resolve().name for run in runs])
    reading = _Reading()
    facts: list[RunFacts] = []
    for position, (run, name) in enumerate(zip(runs, names, strict=True)):
        planned = run.count_planned()
        prefix = f"{name}/" if len(runs) > 1 else ""
        arms = _arms(run.manifest, [arm for _, _, arm in planned], position, prefix)
        numbers = {arm.name: len(reading.arms) + n for n, arm in enumerate(arms)}
        reading.arms += arms
        for (task, subset, arm), count in planned.items():
            reading.planned[numbers[arm], task, subset] += count
        facts.append(_facts(run, name, planned.total(), version))
        if texts:
            _read_with_texts(run, version, numbers, reading)
            reading.calibrations += [(numbers[c.arm], c) for c in calibrations(run)]
            # Runs on the same instances have the same ones.
            reading.baselines |= dict.fromkeys(read_baselines(run.path))
        else:
            _read_scores(run, version, numbers, reading)
    reading.rows.sort(key=lambda row: (row.question, row.arm, row.sample))
    return Evidence(
        runs=tuple(facts),
        arms=tuple(reading.arms),
        questions=tuple(reading.questions),
        rows=tuple(reading.rows),
        planned=reading.planned,
        calibrations=tuple(reading.calibrations),
        baselines=tuple(reading.baselines),
        texts=reading.texts,
    )


def clip(text: str, limit: int) -> str:
    """The text, or its beginning and end with a note of what was left out between them."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    left_out = f"\n[… {len(text) - limit:,} characters left out …]\n"
    return text[:head] + left_out + text[head - limit :]


def _read_scores(
    run: RunFolder, version: str, numbers: Mapping[str, int], reading: _Reading
) -> None:
    columns = ("key", "id", "task", "subset", "rc", "num_entities")
    for key, *rest in run.read_instance_columns(*columns):
        if key not in reading.places:
            reading.places[key] = len(reading.questions)
            reading.questions.append(Question(key, *rest))
    for score in run.iter_scores(version):
        reading.rows.append(_row(score, reading.places, numbers))


def _read_with_texts(
    run: RunFolder, version: str, numbers: Mapping[str, int], reading: _Reading
) -> None:
    # Replies first, so that each instance is needed once and is let go.
    unconstrained: dict[str, list[tuple[int, int]]] = defaultdict(list)
    whole = Texts()
    for key in (key for (key,) in run.read_instance_columns("key")):
        reading.places.setdefault(key, len(reading.places))
    for completion, score in run.iter_scored(version, omit=_NOT_SHOWN):
        if score is None:
            continue
        row = _row(score, reading.places, numbers)
        row.generation = _generation(completion, score.prediction, reading.texts)
        if completion.constraint_kind == "none" and row.has_reply:
            place = whole.keep(completion.reply)
            unconstrained[score.instance_key].append((len(reading.rows), place))
        reading.rows.append(row)
    kinds = {arm.constraint for arm in reading.arms} & set(KINDS) - {"none"}
    for instance in run.iter_instances():
        for number, place in unconstrained.pop(instance.key, ()):
            row = reading.rows[number]
            assert row.generation is not None, "a row with texts has a generation"
            admitted = _admitting(instance, whole.read(place), kinds)
            row.generation = replace(row.generation, admitted=admitted)
        if reading.places[instance.key] == len(reading.questions):
            texts = (
                clip(instance.question, _QUESTION_CHARS),
                clip(json.dumps(instance.answer, default=dict), _JSON_CHARS),
            )
            reading.questions.append(
                Question(
                    instance.key,
                    instance.id,
                    instance.task,
                    instance.subset,
                    instance.rc,
                    instance.num_entities,
                    reading.texts.keep(texts),
                )
            )


def _admitting(instance: Instance, reply: str, kinds: Iterable[str]) -> tuple[str, ...]:
    task = task_for(instance.task)
    return tuple(
        kind
        for kind in task.constraint_kinds
        if kind in kinds and task.constraint(instance, kind).matches(reply)
    )


def _row(score: ScoreRow, places: Mapping[str, int], numbers: Mapping[str, int]) -> Row:
    return Row(
        question=places[score.instance_key],
        arm=numbers[score.arm],
        sample=score.sample,
        status=score.status,
        verdict=score.verdict,
        failure=score.failure,
        precision=score.precision,
        recall=score.recall,
        f1=score.f1,
        vote=None if score.prediction is None else hash(score.prediction),
        upstream_correct=score.upstream_correct,
        audited_correct=score.audited_correct,
    )


def _generation(completion: Completion, prediction: str | None, texts: Texts) -> Generation:
    reply = completion.reply
    return Generation(
        texts=texts.keep(
            (
                clip(reply, _REPLY_CHARS),
                clip(completion.thought, _REPLY_CHARS),
                clip(completion.error or "", _JSON_CHARS),
                prediction and clip(prediction, _JSON_CHARS),
            )
        ),
        whitespace=sum(map(str.isspace, reply)),
        characters=len(reply),
        num_prompt_tokens=completion.num_prompt_tokens,
        num_cached_tokens=completion.num_cached_tokens,
        num_output_tokens=completion.num_output_tokens,
        num_thought_tokens=completion.num_thought_tokens,
        latency_s=completion.latency_s,
        overruled_share=completion.overruled_share,
        logprob_cost=completion.logprob_cost,
        backend=completion.backend,
        compile_s=completion.compile_s,
    )


def _arms(manifest: Mapping[str, Any], planned: Sequence[str], run: int, prefix: str) -> list[Arm]:
    """The arms that were planned, in the order of the config where the manifest has it."""
    settings = {
        str(arm.get("name")): arm
        for arm in cast(list[dict[str, Any]], manifest.get("identity", {}).get("arms", []))
    }
    order = [name for name in settings if name in planned]
    order += [name for name in dict.fromkeys(planned) if name not in settings]
    constraints = {name: str(settings.get(name, {}).get("constraint", name)) for name in order}
    return [
        Arm(
            label=prefix + name + (ASSISTED_MARK if constraints[name] in ASSISTED else ""),
            run=run,
            name=name,
            constraint=constraints[name],
            samples=int(settings.get(name, {}).get("samples", 1)),
            settings=settings.get(name, {}),
        )
        for name in order
    ]


def _facts(run: RunFolder, name: str, planned: int, version: str) -> RunFacts:
    identity: dict[str, Any] = run.manifest.get("identity", {})
    model: dict[str, Any] = identity.get("model", {})
    engine: dict[str, Any] = identity.get("engine", {})
    versions: dict[str, Any] = run.manifest.get("versions", {})
    return RunFacts(
        name=name,
        model=str(model.get("name") or ""),
        commit=str(model.get("commit") or ""),
        engine=str(engine.get("kind") or ""),
        backend=str(engine.get("backend") or ""),
        versions={key: str(value) for key, value in versions.items()},
        planned=planned,
        unscored=run.count_rows(run.unscored_parts(version)),
    )


def _distinct_names(names: Sequence[str]) -> list[str]:
    """The names, numbered where two runs are called the same."""
    counts = Counter(names)
    seen: Counter[str] = Counter()
    distinct: list[str] = []
    for name in names:
        seen[name] += 1
        distinct.append(f"{name}-{seen[name]}" if counts[name] > 1 else name)
    return distinct
