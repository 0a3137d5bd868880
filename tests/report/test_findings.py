"""What a report says of a run: comparisons, curves, effects, failures and remarks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from ablation_runs import ARMS, ablation_run
from example_runs import completion, instance, new_run, request
from report_runs import UNPARSED, mixed_run, score_row

from rel_batch.config import ArmConfig
from rel_batch.errors import ConfigError, StoreError
from rel_batch.instances import read_instances
from rel_batch.records import SCORING_VERSION
from rel_batch.report import summarise
from rel_batch.report.baselines import BaselineRow, publish_baselines
from rel_batch.report.calibration import Calibration
from rel_batch.report.comparison import compare_runs
from rel_batch.report.evidence import clip, read_evidence
from rel_batch.report.findings import find
from rel_batch.report.reasons import REASONS
from rel_batch.report.sections import all_tables, answer_table, baselines_table
from rel_batch.report.tables import NONE, Linked
from rel_batch.report.texts import Texts
from rel_batch.store import RunFolder, ScoreRow


def scored_run(path: Path, rows: list[ScoreRow], rc: list[int] | None = None) -> RunFolder:
    """A run of REL-A1 whose scores are these rows."""
    numbers = sorted({int(row.instance_key[1:]) for row in rows})
    instances = [
        dataclasses.replace(instance(n), rc=rc[place] if rc else 2)
        for place, n in enumerate(numbers)
    ]
    requests = [
        request(int(r.instance_key[1:]), arm=r.arm, sample=r.sample, key=r.request_key)
        for r in rows
    ]
    run = new_run(path, instances=instances, requests=requests)
    done = [
        completion(
            int(r.instance_key[1:]),
            arm=r.arm,
            sample=r.sample,
            request_key=r.request_key,
            status=r.status,
            constraint_kind=r.arm if r.arm == "none" else "format",
        )
        for r in rows
    ]
    run.publish_scores(SCORING_VERSION, run.publish_part(0, done), rows)
    return run


def row(number: int, *, correct: bool, arm: str = "format", sample: int = 0) -> ScoreRow:
    key = f"r{number}-{arm}-{sample}"
    return score_row(
        number, correct=correct, arm=arm, sample=sample, request_key=key, prediction=str(correct)
    )


def test_the_report_and_the_table_of_the_terminal_agree(tmp_path: Path) -> None:
    run = ablation_run(tmp_path / "run")
    findings = find(read_evidence([run]))
    summary = summarise(run)
    for result in findings.results:
        groups = [
            group
            for group in summary.groups
            if (group.name, group.arm) == (result.task, findings.arms[result.arm].name)
        ]
        assert result.estimate.n == sum(group.n for group in groups)
        assert result.estimate.value == pytest.approx(
            sum(group.correct for group in groups) / result.estimate.n
        )
        assert result.truncated == sum(group.truncated for group in groups)
        assert result.unparsed == sum(group.unparsed for group in groups)
        assert result.errors == sum(group.errors for group in groups)


def test_rows_that_are_missing_are_said(tmp_path: Path) -> None:
    findings = find(read_evidence([mixed_run(tmp_path / "run")]))
    assert findings.warnings == ("Incomplete: 1 of 22 planned rows are missing.",)
    [short] = [result for result in findings.results if result.missing]
    assert (short.task, short.estimate.n) == ("REL-C1", 1)
    # What is missing has met no requirement.
    assert short.completion is not None
    assert short.completion.n == 2


def test_arms_are_compared_with_the_unconstrained_one(tmp_path: Path) -> None:
    findings = find(read_evidence([ablation_run(tmp_path / "run")]))
    assert {(c.baseline, c.other) for c in findings.comparisons} == {(0, 1)}
    assert findings.arms[0].constraint == "none"


def test_arms_can_be_compared_with_any_arm(tmp_path: Path) -> None:
    evidence = read_evidence([ablation_run(tmp_path / "run")], texts=False)
    assert {c.baseline for c in find(evidence, baseline="format").comparisons} == {1}
    with pytest.raises(ConfigError, match="formt"):
        find(evidence, baseline="formt")


def test_two_runs_are_compared_on_the_instances_that_both_have(tmp_path: Path) -> None:
    everything = read_instances("bundled", tasks=["REL-C1"])
    a = ablation_run(tmp_path / "a", instances=everything[:5])
    b = ablation_run(tmp_path / "b", instances=everything[2:], skill=0.9)
    evidence = read_evidence([a, b], texts=False)
    assert [arm.label for arm in evidence.arms] == ["a/none", "a/format", "b/none", "b/format"]
    comparisons = compare_runs(evidence)
    assert [(c.baseline, c.other) for c in comparisons] == [(0, 2), (1, 3)]
    assert all(c.paired.difference.n == 3 for c in comparisons)
    assert all((c.only_baseline, c.only_other) == (2, 1) for c in comparisons)
    assert any("restricted" in remark for remark in find(evidence).remarks)


def test_runs_of_one_arm_each_are_compared_whatever_it_is_called(tmp_path: Path) -> None:
    a = ablation_run(tmp_path / "a", arms=ARMS[:1])
    b = ablation_run(tmp_path / "b", arms=ARMS[1:])
    assert {(c.baseline, c.other) for c in compare_runs(read_evidence([a, b]))} == {(0, 1)}


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [ablation_run(tmp_path / folder / "run", arms=ARMS[:1]) for folder in "ab"]
    assert [arm.label for arm in read_evidence(runs).arms] == ["run-1/none", "run-2/none"]


def test_p_values_are_corrected_over_the_whole_table(tmp_path: Path) -> None:
    findings = find(read_evidence([ablation_run(tmp_path / "run")]))
    assert len(findings.comparisons) == 4
    for c in findings.comparisons:
        assert c.paired.p_value is not None
        assert c.p_holm is not None
        assert c.paired.p_value <= c.p_holm <= 4 * c.paired.p_value


def test_samples_of_an_instance_are_one_observation(tmp_path: Path) -> None:
    rows = [row(n, correct=(n + s) % 4 == 0, sample=s) for n in range(6) for s in range(4)]
    [result] = find(read_evidence([scored_run(tmp_path / "run", rows)])).results
    assert result.estimate.n == 6
    assert result.estimate.value == 0.25
    assert result.estimate.method == "wilson"  # as all instances have the same share
    assert {k: e.value for k, e in result.pass_at.items()} == {2: 0.5, 4: 1.0}
    assert result.majority is not None
    assert result.majority.value == 0.0


def test_a_sample_that_is_missing_leaves_its_instance_out_of_pass_at_k(tmp_path: Path) -> None:
    rows = [row(n, correct=True, sample=s) for n in range(4) for s in range(2)][:-1]
    [result] = find(read_evidence([scored_run(tmp_path / "run", rows)])).results
    assert result.estimate.n == 4
    assert result.pass_at[2].n == 3


def test_curves_take_a_tasks_subsets_together_and_bin_many_levels(tmp_path: Path) -> None:
    rows = [row(n, correct=n % 3 == 0) for n in range(60)]
    levels = [2 + n // 2 for n in range(60)]
    [curve] = find(read_evidence([scored_run(tmp_path / "run", rows, rc=levels)])).curves
    assert len(curve.levels) == 30
    assert len(curve.points) <= 10
    assert sum(level.estimate.n for level in curve.points) == 60
    assert [point.low for point in curve.points[1:]] > [p.high for p in curve.points[:-1]]
    assert (curve.points[0].low, curve.points[-1].high) == (2, 31)


def test_entities_that_move_with_rc_are_warned_of(tmp_path: Path) -> None:
    findings = find(read_evidence([ablation_run(tmp_path / "run")]))
    (told,) = [remark for remark in findings.remarks if "number of entities" in remark]
    assert "REL-A3 (+1.00 over 8 instances)" in told


def test_an_effect_counts_the_replies_that_were_valid_already(tmp_path: Path) -> None:
    one = read_instances("bundled", tasks=["REL-C1"])[:1]
    findings = find(read_evidence([ablation_run(tmp_path / "run", instances=one, skill=2.0)]))
    free, bound = findings.effects
    assert free.gained is None
    assert bound.valid_before.n == 1
    before = findings.evidence.texts_of(findings.evidence.rows[0])
    assert bound.valid_before.value == float(before.reply in ("<Yes>", "<No>"))
    assert (free.violated, bound.violated) == (None, 0)


def test_what_changed_verdict_is_counted_in_each_direction(tmp_path: Path) -> None:
    correct = {("none", 0): True, ("none", 1): True, ("none", 2): False, ("none", 3): False}
    correct |= {("format", n): n != 1 for n in range(4)}
    rows = [row(n, correct=c, arm=arm) for (arm, n), c in correct.items()]
    findings = find(read_evidence([scored_run(tmp_path / "run", rows)]))
    [c] = findings.comparisons
    assert (c.paired.gained, c.paired.lost) == (2, 1)
    [effect] = [e for e in findings.effects if e.free is not None]
    assert (effect.gained, effect.lost) == (2, 1)


def test_failures_are_counted_by_reason_and_arm(tmp_path: Path) -> None:
    rows = [row(0, correct=True), row(1, correct=False), row(2, correct=False)]
    rows.append(dataclasses.replace(row(3, correct=False), **UNPARSED))
    findings = find(read_evidence([scored_run(tmp_path / "run", rows)]))
    counted = {(f.reason, f.counts[0]) for f in findings.failures}
    assert counted == {("wrong_label", 2), ("undecided", 1)}


def test_every_failure_of_a_task_is_told_in_words() -> None:
    from typing import get_args

    from rel_batch.tasks.choices import Failure

    assert set(get_args(Failure)) <= REASONS.keys()


def test_no_table_shows_a_share_without_its_n(tmp_path: Path) -> None:
    findings = find(read_evidence([ablation_run(tmp_path / "run")]))
    for table in all_tables(findings):
        shares = [c for c in table.columns if c.kind in ("estimate", "change", "slope", "percent")]
        assert not shares or {"n", "rows"} & {column.name for column in table.columns}


def test_flat_tables_have_every_estimate_with_its_interval_and_n(tmp_path: Path) -> None:
    findings = find(read_evidence([ablation_run(tmp_path / "run")]))
    for table in all_tables(findings):
        names, rows = table.flat()
        assert len(set(names)) == len(names)
        assert all(len(values) == len(names) for values in rows)
        assert not any(isinstance(value, Linked) for values in rows for value in values)
    names, rows = next(iter(all_tables(findings))).flat()
    assert names[1:5] == ["mean", "mean_low", "mean_high", "mean_n"]


def test_calibration_is_a_table_where_distributions_were_measured(tmp_path: Path) -> None:
    run = ablation_run(tmp_path / "run", instances=read_instances("bundled", tasks=["REL-C1"]))
    plain = read_evidence([run])
    assert "calibration" not in {table.name for table in all_tables(find(plain))}
    figures = Calibration("REL-C1", "all", "format", 6, 0.5, 0.1, 0.4, 0.9, ())
    measured = find(dataclasses.replace(plain, calibrations=((1, figures),)))
    [table] = [table for table in all_tables(measured) if table.name == "calibration"]
    shown = [table.shown(values) for values in table.rows]
    assert shown == [["REL-C1", "all", "format", "6", "50.0", "0.100", "0.400", "90.0"]]


def test_long_texts_are_clipped_in_the_middle_and_say_so() -> None:
    assert clip("short", 9) == "short"
    assert clip("a" * 90 + "b" * 90, 90) == (
        "a" * 60 + "\n[… 90 characters left out …]\n" + "b" * 30
    )


def test_an_arm_with_several_samples_is_reported_beside_one_with_a_single(tmp_path: Path) -> None:
    arms = [ARMS[0], ArmConfig(name="drawn", temperature=0.7, samples=3, max_tokens=400)]
    findings = find(read_evidence([ablation_run(tmp_path / "run", arms=arms)]))
    assert {c.paired.test for c in findings.comparisons} == {"bootstrap"}
    assert {r.samples for r in findings.results} == {1, 3}
    assert NONE not in {
        show for t in all_tables(findings) for r in t.rows for show in t.shown(r)[:1]
    }


def test_an_arm_that_was_left_out_for_a_task_is_said_once_with_the_reason(tmp_path: Path) -> None:
    run = ablation_run(
        tmp_path / "run",
        arms=(ARMS[0], ArmConfig(name="syntax", constraint="syntax")),
        instances=read_instances("bundled", tasks=("REL-A3", "REL-C1", "REL-C3")),
    )
    told = [remark for remark in find(read_evidence([run])).remarks if "syntax" in remark]
    assert told == [
        "Arm syntax is left out for REL-A3, REL-C1: its constraint (syntax) means nothing there; "
        "its mean is over the other tasks and not comparable."
    ]


def test_shortcuts_without_a_model_stand_beside_the_arms(tmp_path: Path) -> None:
    run = scored_run(tmp_path / "run", [row(n, correct=n < 6) for n in range(10)])
    publish_baselines(
        run.path,
        [
            BaselineRow("REL-A1", "3x3", "random", bears_on_rule=False, correct=1, n=10),
            BaselineRow("REL-A1", "3x3", "size", bears_on_rule=False, correct=8, n=10),
            BaselineRow("REL-A1", "9x9", "size", bears_on_rule=False, correct=4, n=5),
            BaselineRow("REL-A1", "3x3", "the rule", bears_on_rule=True, correct=10, n=10),
        ],
    )
    findings = find(read_evidence([run]))
    best = answer_table(findings).rows[-1]
    assert (best[0], best[-1].value, best[-1].n) == ("best shortcut", 0.8, 15)
    table = baselines_table(findings)
    assert [(name, rule, n) for _, name, rule, _, n in table.rows] == [
        ("the rule", "yes", 10),
        ("size", "", 15),
        ("random", "", 10),
    ]
    # Two runs on the same instances have the same shortcuts.
    again = find(read_evidence([run, run]))
    assert baselines_table(again).rows == table.rows


def test_both_verdicts_are_shown_where_gold_was_audited(tmp_path: Path) -> None:
    rows = [
        dataclasses.replace(row(n, correct=n < 2), audited_correct=n < 3 or None) for n in range(4)
    ]
    (result,) = find(read_evidence([scored_run(tmp_path / "run", rows)])).results
    assert (result.estimate.value, result.estimate.n) == (0.5, 4)
    assert result.audited is not None
    assert (result.audited.value, result.audited.n) == (1.0, 3)
    assert result.audited_differs == 1


def test_what_masked_the_tokens_and_what_compiling_took_is_told_by_arm(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", num_instances=3)
    done = [
        completion(n, backend=backend, compile_s=seconds)
        for n, (backend, seconds) in enumerate(
            [("xgrammar", 0.01), ("xgrammar", 0.03), ("guidance", 0.02)]
        )
    ]
    part = run.publish_part(0, done)
    run.publish_scores(
        SCORING_VERSION, part, [score_row(n, request_key=f"r{n}-format") for n in range(3)]
    )
    findings = find(read_evidence([run]))
    (effect,) = findings.effects
    assert effect.backends == ("guidance", "xgrammar")
    assert effect.compile_ms == pytest.approx(20.0)
    table = next(table for table in all_tables(findings) if table.name == "effects")
    shown = dict(zip([c.name for c in table.columns], table.shown(table.rows[0]), strict=True))
    assert (shown["backend"], shown["compile_ms"]) == ("guidance, xgrammar", "20.00")


def test_texts_wait_on_disk_and_come_back_as_they_were(tmp_path: Path) -> None:
    evidence = read_evidence([ablation_run(tmp_path / "run")])
    prompts = {question.key: n for n, question in enumerate(evidence.questions)}
    run = RunFolder.open(tmp_path / "run")
    for one in run.iter_instances():
        prompt, _ = evidence.prompt_and_gold(prompts[one.key])
        assert prompt == clip(one.question, 6_000)
    replies = sorted(c.reply for c in run.iter_completions())
    assert sorted(evidence.texts_of(row).reply for row in evidence.rows) == replies
    with pytest.raises(StoreError, match="cannot keep the texts"):
        _full_disk().keep("text")


def _full_disk() -> Texts:
    class Full:
        def seek(self, *_: int) -> int:
            raise OSError(28, "No space left on device")

    texts = Texts()
    vars(texts)["_file"] = Full()
    return texts
