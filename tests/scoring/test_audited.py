"""Audited verdicts: gold without its known faults, beside the strict verdict."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from example_runs import completion, instance, new_run, request

from rel_batch import read_instances, score_reply
from rel_batch.instances import instance_of
from rel_batch.records import SCORING_VERSION, STATUSES_WITHOUT_REPLY, Instance
from rel_batch.report import summarise, to_json
from rel_batch.report.table import render_table
from rel_batch.scoring import score_completion, score_run
from rel_batch.tasks import task_for


def chemistry(task: str, molecules: list[str], **answer: Any) -> Instance:
    listed = "\n".join(f"{i}. {smiles}" for i, smiles in enumerate(molecules, 1))
    return instance_of(
        {
            "id": "x",
            "task": task,
            "question": f"SMILES:\n{listed}\n",
            "answer": {"molecules": molecules, **answer},
            "metadata": {},
        }
    )


# The released C4H10O-like case in small: gold lacks the ether.
INCOMPLETE = chemistry("REL-C3", ["CCCO"], missing_smiles=["CC(C)O"])
# OCCCC and NCCCC are of one size; gold is the first.
TWO_MOTIFS = chemistry("REL-C2", ["OCCCCN", "OCCC(F)CCN"], smiles="CCCCO")


def tags(*smiles: str) -> str:
    return "\n".join(f"<smiles>{one}</smiles>" for one in smiles)


@pytest.mark.parametrize(
    ("record", "reply", "strict", "audited"),
    [
        (INCOMPLETE, tags("CC(C)O"), "correct", "incorrect"),
        (INCOMPLETE, tags("CC(C)O", "CCOC"), "incorrect", "correct"),
        (INCOMPLETE, tags("CC(C)O", "CCOC", "CCO"), "incorrect", "incorrect"),
        (INCOMPLETE, "", "unparsed", "unparsed"),
        (TWO_MOTIFS, tags("CCCCO"), "correct", "correct"),
        (TWO_MOTIFS, tags("CCCCN"), "incorrect", "correct"),
        (TWO_MOTIFS, tags("NCCCC"), "incorrect", "correct"),
        (TWO_MOTIFS, tags("CCCC"), "incorrect", "incorrect"),
        (TWO_MOTIFS, tags("CCCCF"), "incorrect", "incorrect"),
        (TWO_MOTIFS, tags("CCO.CCN"), "incorrect", "incorrect"),
        (TWO_MOTIFS, "no idea", "unparsed", "unparsed"),
    ],
)
def test_an_audited_verdict_compares_with_gold_without_its_faults(
    record: Instance, reply: str, strict: str, audited: str
) -> None:
    assert score_reply(record, reply).verdict == strict
    score = score_reply(record, reply, scorer="audited")
    assert score.verdict == audited
    assert (score.failure is None) == score.correct


def test_completed_gold_changes_recall() -> None:
    score = score_reply(INCOMPLETE, tags("CC(C)O"), scorer="audited")
    assert (score.precision, score.recall, score.failure) == (1.0, 0.5, "missing_molecules")


def test_where_gold_has_no_fault_both_verdicts_are_the_same() -> None:
    for one in read_instances("bundled"):
        task = task_for(one.task)
        for reply in (task.reference_reply(one), "", "Yes: 1, 2", tags("CCO")):
            assert score_reply(one, reply, scorer="audited") == score_reply(one, reply)


@pytest.mark.parametrize(
    "molecules", [["C" * 14], ["CCO", "CCCO"], ["C[Si](C)C"]], ids=["large", "mixed", "element"]
)
def test_where_no_universe_can_be_enumerated_the_stored_gold_stands(molecules: list[str]) -> None:
    record = chemistry("REL-C3", molecules, missing_smiles=["CCOC"])
    assert score_reply(record, tags("CCOC"), scorer="audited").verdict == "correct"


@pytest.mark.parametrize("reply", [tags("C" * 900), tags("c1ccccc1" * 100), tags("[13CH3]O")])
def test_an_audited_verdict_takes_any_reply(reply: str) -> None:
    for record in (INCOMPLETE, TWO_MOTIFS):
        assert score_reply(record, reply, scorer="audited").verdict == "incorrect"


def mended_run(path: Path) -> Any:
    record = dataclasses.replace(INCOMPLETE, key="i0")
    plain = dataclasses.replace(instance(1), key="i1")
    run = new_run(
        path,
        instances=[record, plain],
        requests=[request(0, task="REL-C3"), request(1)],
    )
    run.publish_part(
        0,
        [completion(0, task="REL-C3", reply=tags("CC(C)O", "CCOC")), completion(1, reply="2")],
    )
    return run


def test_audited_verdicts_are_columns_of_their_own_and_only_on_request(tmp_path: Path) -> None:
    run = mended_run(tmp_path / "run")
    score_run(run)
    assert [row.audited_correct for row in run.iter_scores(SCORING_VERSION)] == [None, None]
    assert "audited" not in to_json(summarise(run))
    score_run(run, audited=True)
    rows = list(run.iter_scores(SCORING_VERSION))
    assert [(row.correct, row.audited_correct) for row in rows] == [(False, True), (True, True)]
    # Once asked for, they stay.
    score_run(run)
    assert list(run.iter_scores(SCORING_VERSION)) == rows


def test_the_summary_says_how_many_verdicts_differ(tmp_path: Path) -> None:
    run = mended_run(tmp_path / "run")
    score_run(run, audited=True)
    summary = summarise(run)
    assert {g.name: (g.audited, g.audited_differs, g.n) for g in summary.groups} == {
        "REL-A1": (1, 0, 1),
        "REL-C3": (1, 1, 1),
    }
    assert '"differs": 1' in to_json(summary)
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as shown:
        console.print(render_table(summary, width=200))
    assert "audited %" in shown.get()
    assert "differ" in shown.get()


@pytest.mark.parametrize("status", sorted(STATUSES_WITHOUT_REPLY))
def test_a_row_without_a_reply_has_no_audited_verdict(status: Any) -> None:
    done = completion(0, status=status, reply="", finish_reason=None)
    assert score_completion(instance(0), done, audited=True).audited_correct is None


def test_a_truncated_reply_is_no_right_answer_by_audited_gold_either() -> None:
    reply = "<smiles>CCCCN"
    assert score_reply(TWO_MOTIFS, reply, "length", scorer="audited").verdict == "unparsed"
