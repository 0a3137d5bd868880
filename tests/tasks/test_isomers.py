"""REL-C1 and REL-C3: which replies are right, which are wrong, and which say nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from rel_batch import constraint_for, read_instances, score_reply
from rel_batch.errors import DataError
from rel_batch.instances import instance_of
from rel_batch.records import VERDICTS, Score

SMILES_CHARS = "BCNOPSFIclbrnospH@+-[]()=#$:/\\.%*0123456789"


def isomer_set(label: str = "Yes", molecules: Sequence[str] = ("CCO", "COC")) -> dict[str, Any]:
    listed = "\n".join(f"{i}. {smiles}" for i, smiles in enumerate(molecules, 1))
    return {
        "id": "c1",
        "domain": "chemistry",
        "task": "REL-C1",
        "question": f"Are these isomers?\n\nSMILES:\n{listed}\n\nReturn <Yes> or <No>.",
        "answer": {"molecules": list(molecules), "label": label},
        "metadata": {},
    }


def missing_isomers(
    missing: Sequence[str] = ("C1CCC1", "CC=CC", "C=C(C)C"),
    given: Sequence[str] = ("C=CCC", "CC1CC1"),
) -> dict[str, Any]:
    """C4H8 has five constitutional isomers: two are shown and three are asked for."""
    listed = "\n".join(f"{i}. {smiles}" for i, smiles in enumerate(given, 1))
    return {
        "id": "c3",
        "domain": "chemistry",
        "task": "REL-C3",
        "question": f"Complete the set.\n\nGiven SMILES:\n{listed}",
        "answer": {"molecules": list(given), "missing_smiles": list(missing)},
        "metadata": {},
    }


YES, NO, C3 = (
    instance_of(record) for record in (isomer_set(), isomer_set("No"), missing_isomers())
)


def lines(*smiles: str) -> str:
    return "\n".join(f"<smiles>{text}</smiles>" for text in smiles)


ALL = ("C1CCC1", "CC=CC", "C=C(C)C")


# C1


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("<Yes>", "Yes"),
        ("<No>", "No"),
        ("<yes>", "Yes"),
        ("< YES >\n", "Yes"),
        ("**<No>**", "No"),
        ("`<No>`", "No"),
        ("<No></No>", "No"),
        ("<Yes/>", "Yes"),
        ("<Yes />", "Yes"),
        ("<Yes>\n<Yes>", "Yes"),
        ("The formulas differ, so I return <No>.", "No"),
        # what is stated last counts, and an echo of the instruction is no statement
        ("Return exactly one of:\n<Yes>\nor\n<No>\nNo explanation.\n\n<Yes>", "Yes"),
        ("I must return exactly one of <Yes> or <No>.\n\nFinal answer: <No>", "No"),
        ("Options: <Yes>/<No>. <Yes>", "Yes"),
        ("<Yes> | <No>\n<No>", "No"),
        ("If all agree I print <Yes>. Molecule 3 differs.\n\n<No>", "No"),
        ("<Yes>\n\nWait, molecule 3 has another formula.\n\n<No>", "No"),
        ("<Yes>\nWait, actually it is <No>.", "No"),
        ("<Yes> because all agree; otherwise I would say so.", "Yes"),
        ("**Answer:** <No>", "No"),
        ("Answer: <Yes>\nI first thought <No>.", "Yes"),
        ("The answer is not <Yes>. The answer is <No>.", "No"),
        # no angle brackets: the label starts the reply, is alone on its line, or follows a cue
        ("Yes", "Yes"),
        ("no.", "No"),
        ("Yes, these are constitutional isomers.", "Yes"),
        ("**No**: the formulas differ.", "No"),
        ("All have the formula C5H8.\n\nYes", "Yes"),
        ("Final answer: No", "No"),
        ("The answer is yes because all agree", "Yes"),
        (r"\boxed{\text{No}}", "No"),
        ('{"answer": "Yes"}', "Yes"),
        ('```json\n{"label": "No"}\n```', "No"),
        ("<answer>Yes</answer>", "Yes"),
        ("<think><No> or <Yes>?</think><Yes>", "Yes"),
    ],
)
def test_c1_reads_the_label_that_is_stated(reply: str, label: str) -> None:
    right, wrong = score_reply(YES, reply), score_reply(NO, reply)
    assert (right.prediction, wrong.prediction) == (label, label)
    assert {(right.verdict, right.failure), (wrong.verdict, wrong.failure)} == {
        ("correct", None),
        ("incorrect", "wrong_label"),
    }


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        ("", "no_answer"),
        ("I do not know.", "no_answer"),
        ("I'm sorry, but I can't determine that.", "no_answer"),
        ("No explanation.", "no_answer"),
        ("Not all formulas agree", "no_answer"),
        ("Nobody knows", "no_answer"),
        ("Give the answer. No explanation needed.", "no_answer"),
        ("These molecules are constitutional isomers.", "no_answer"),  # implied, not stated
        ("<Maybe>", "no_answer"),
        ("<Yes>\n<No>", "contradictory"),
        ("<Yes> <No>", "contradictory"),
        ("Return exactly one of:\n<Yes>\nor\n<No>\nNo explanation.", "contradictory"),
        ("It may be <Yes>, it may be <No>.", "contradictory"),
        ("The answer is not <Yes>.", "contradictory"),
        ("Yes\nNo", "contradictory"),
        ("<think><Yes></think>", "no_answer"),
        ("<think>the answer is <Yes>", "no_answer"),
    ],
)
def test_c1_without_one_label_is_unparsed(reply: str, failure: str) -> None:
    for instance in (YES, NO):
        assert score_reply(instance, reply) == Score("unparsed", failure=failure)


@pytest.mark.parametrize(
    ("reply", "is_read"),
    [
        ("<Yes>", True),
        ("All agree.\n\n<Yes>\n\nThat is beca", True),
        ("All agree. Final answer: <Yes>", True),
        ("Yes, they all ha", True),
        ("Yes", False),  # perhaps not the whole word
        ("If all formulas agree I should print <Yes>, else", False),  # on its way to an answer
        ("Let me count the atoms of molecule 1", False),
        ("<Ye", False),
    ],
)
def test_c1_cut_by_the_limit_counts_only_what_was_stated_before(reply: str, is_read: bool) -> None:
    score = score_reply(YES, reply, finish_reason="length")
    assert score == (Score("correct", "Yes") if is_read else Score("unparsed", None, "truncated"))


# C3


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (lines(*ALL), "as the prompt asks"),
        (lines(*reversed(ALL)), "order does not matter"),
        (lines(*ALL, *ALL), "a repeated molecule is one"),
        (lines("C1CCC1", "C(C)=CC", "CC(C)=C"), "spelling does not matter"),
        (lines(*ALL, "C/C=C/C", "C/C=C\\C"), "stereo is dropped"),
        (lines("[13CH2]1CCC1", "[CH3:1]C=CC", "C=C(C)C([2H])[2H]"), "labels are dropped"),
        (lines(*ALL).replace("smiles", "SMILES"), "any case of the tag"),
        ("1. " + lines(*ALL).replace("\n", "\n2. "), "numbered"),
        (f"```\n{lines(*ALL)}\n```", "fenced"),
        (f"Here they are:\n{lines(*ALL)}\nThese complete the set.", "prose around"),
        (lines(*ALL).replace("\n", " "), "on one line"),
        (lines(*ALL).replace("<smiles>", "<smiles>\n").replace("</", "\n</"), "line breaks"),
        (lines(*(f"`{s}`" for s in ALL)), "markup in the tag"),
        (lines(f"{ALL[0]} cyclobutane", *ALL[1:]), "a name after the SMILES"),
        ("Format: <smiles>YOUR_SMILES_HERE</smiles>\n" + lines(*ALL), "an echo of the prompt"),
        (lines(*ALL, ""), "an empty tag holds no molecule"),
        ("<think><smiles>CCO</smiles></think>" + lines(*ALL), "a thought is no answer"),
        (lines(", ".join(ALL)), "several molecules in one tag"),
        (lines("\n".join(ALL)), "several molecules in one tag, one a line"),
        (lines(*ALL).replace("</smiles>\n", "\n"), "tags left open at the end of their lines"),
        ("\n".join(ALL), "bare lines"),
        ("- " + "\n- ".join(ALL), "a bare list"),
        ("The missing isomers are:\n\n1. " + "\n2. ".join(ALL), "a bare list after prose"),
        (", ".join(ALL), "bare, on one line"),
        (json.dumps({"missing": ALL}), "JSON"),
        (f"```json\n{json.dumps(ALL)}\n```", "fenced JSON"),
    ],
)
def test_c3_is_right_where_the_set_of_molecules_is_golds(reply: str, why: str) -> None:
    score = score_reply(C3, reply)
    assert (score.verdict, score.failure) == ("correct", None), why
    assert (score.precision, score.recall, score.f1) == (1.0, 1.0, 1.0)
    assert {*score.prediction} == {*ALL}


@pytest.mark.parametrize(
    ("reply", "failure", "hits", "predicted"),
    [
        (lines("CC=CC"), "missing_molecules", 1, 1),
        (lines(*ALL, "C1CC"), "unparsable_smiles", 3, 4),
        (lines(*ALL, "C1CC", "C1CC", "CCCC"), "unparsable_smiles", 3, 5),
        (lines("methylcyclopropane"), "unparsable_smiles", 0, 1),
        (lines(*ALL, "CCCC"), "wrong_formula", 3, 4),
        (lines(*ALL, "C=C.C=C"), "extra_molecules", 3, 4),
        (lines(".".join(ALL)), "wrong_formula", 0, 1),  # a dot joins the parts of one species
        (lines(*ALL, "CCC=C"), "repeats_given", 3, 4),
        (lines("C=CCC", "CC1CC1"), "repeats_given", 0, 2),
        (lines(*ALL, "[CH2]CC[CH2]"), "extra_molecules", 3, 4),
        (lines(*ALL[:2], "[CH2]CC[CH2]"), "extra_molecules", 2, 3),
        (lines("C" * 20_000), "unparsable_smiles", 0, 1),
        ("- CC=CC\n- C1CC", "unparsable_smiles", 1, 2),
    ],
)
def test_c3_wrong_sets_are_measured(reply: str, failure: str, hits: int, predicted: int) -> None:
    score = score_reply(C3, reply)
    assert (score.verdict, score.failure) == ("incorrect", failure)
    assert len(score.prediction) == predicted
    assert (score.precision, score.recall) == (hits / predicted, hits / 3)
    assert score.f1 == pytest.approx(2 * hits / (predicted + 3))


@pytest.mark.parametrize(
    "reply",
    [
        *("", "The set is already complete; there are no missing isomers.", "None", "No", "No."),
        *("<smiles></smiles>", "<smiles>YOUR_SMILES_HERE</smiles>", "<smiles>", "I cannot."),
        "<think>" + lines(*ALL),
    ],
)
def test_c3_without_a_prediction_is_unparsed(reply: str) -> None:
    assert score_reply(C3, reply) == Score("unparsed", None, "no_answer", 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("reply", "verdict", "failure", "recall"),
    [
        (lines(*ALL), "correct", None, 1.0),
        (lines(*ALL) + "\n\nThese are a", "correct", None, 1.0),
        (lines(*ALL) + "\n```", "correct", None, 1.0),
        (lines(*ALL) + "\n<smi", "incorrect", "truncated", 1.0),  # it went on to a fourth
        (lines(*ALL) + "\n<smiles>", "incorrect", "truncated", 1.0),
        (lines(*ALL) + "\n<smiles>CC", "incorrect", "truncated", 1.0),
        (lines(*ALL) + "\n4.", "incorrect", "truncated", 1.0),
        (lines(*ALL[:2]) + "\n<smiles>C=C(C)C", "incorrect", "truncated", 2 / 3),
        (lines(*ALL[:2]), "incorrect", "truncated", 2 / 3),
        (lines("CCCC") + "\n<smiles>C=C", "incorrect", "wrong_formula", 0.0),
        ("<smiles>CC=CC", "unparsed", "truncated", 0.0),
        ("", "unparsed", "truncated", 0.0),
        ("\n".join(ALL), "incorrect", "truncated", 2 / 3),  # the last bare line may go on
    ],
)
def test_c3_cut_by_the_limit_counts_what_was_complete(
    reply: str, verdict: str, failure: str | None, recall: float
) -> None:
    score = score_reply(C3, reply, finish_reason="length")
    assert (score.verdict, score.failure, score.recall) == (verdict, failure, recall)


def test_c3_a_last_tag_left_open_counts_only_where_it_is_the_only_one() -> None:
    one = instance_of(missing_isomers(missing=["CC=CC"]))
    assert score_reply(one, "<smiles>CC=CC").correct
    left_open = score_reply(C3, lines(*ALL[:2]) + "\n<smiles>C=C(C)C")
    assert (left_open.failure, left_open.precision, left_open.recall) == (
        "missing_molecules",
        1.0,
        2 / 3,
    )


spellings = st.lists(st.integers(0, 2**31 - 1), min_size=3, max_size=3)


@settings(max_examples=40, deadline=None)
@given(spellings, st.permutations(ALL), st.integers(1, 3))
def test_c3_scores_do_not_depend_on_spelling_order_or_repetition(
    seeds: list[int], molecules: list[str], times: int
) -> None:
    respelled = [
        Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), 1, randomSeed=seed)[0]
        for smiles, seed in zip(molecules, seeds, strict=True)
    ]
    assert score_reply(C3, lines(*(respelled * times))).correct
    shown = score_reply(C3, lines(*molecules[:2], "C1CC", *respelled[:2]))
    assert (shown.precision, shown.recall) == (2 / 3, 2 / 3)


@given(st.sets(st.sampled_from(ALL), min_size=1), st.sampled_from(["CCC", "C1CC", "CC1CC1", "?"]))
def test_c3_one_more_wrong_molecule_lowers_precision_and_leaves_recall(
    molecules: set[str], wrong: str
) -> None:
    before = score_reply(C3, lines(*sorted(molecules)))
    after = score_reply(C3, lines(*sorted(molecules), wrong))
    assert before.precision is not None
    assert after.precision is not None
    assert after.precision < before.precision
    assert (after.recall, after.correct) == (before.recall, False)


@pytest.mark.parametrize("instance", [YES, NO, C3], ids=["yes", "no", "c3"])
@settings(max_examples=80, deadline=None)
@given(
    reply=st.text()
    | st.text(alphabet=SMILES_CHARS + "<>/ \nsmilesYesNoor,")
    | st.lists(
        st.sampled_from([*"<>/,;\n ", "smiles", "Yes", "No", "or", "answer", "C1CC", "[H]"])
    ).map("".join)
)
@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_scoring_is_total_and_pure(instance: Any, finish_reason: str, reply: str) -> None:
    first = score_reply(instance, reply, finish_reason)
    assert score_reply(instance, reply, finish_reason) == first
    assert first.failure is not None or first.correct
    score_reply(instance, reply, scorer="upstream")
    json.dumps(first.prediction)


@given(st.lists(st.text(alphabet=SMILES_CHARS, min_size=1, max_size=12), min_size=1, max_size=4))
def test_what_the_format_admits_is_never_unparsed(contents: list[str]) -> None:
    reply = lines(*contents)
    assert constraint_for(C3).matches(reply)
    assert score_reply(C3, reply).parsed


@pytest.mark.parametrize(
    ("reply", "is_admitted"),
    [
        (lines(*ALL), True),
        (lines("[13C@@H](/F)(\\Cl)Br", "c1cc(C%12CC%12)ccc1[N+](=O)[O-]"), True),
        (lines(*["C"] * 300), True),
        ("", False),
        (lines(""), False),
        (lines("C C"), False),
        (lines("YOUR_SMILES_HERE"), False),
        (lines("C") + "\n", False),
        ("<smiles>C</smiles> <smiles>C</smiles>", False),
        ("<SMILES>C</SMILES>", False),
    ],
)
def test_c3_format_is_one_tag_a_line(reply: str, is_admitted: bool) -> None:
    assert constraint_for(C3).matches(reply) == is_admitted


def test_c1_format_is_one_of_two_tags() -> None:
    constraint = constraint_for(YES)
    admitted = [
        t for t in ("<Yes>", "<No>", "<yes>", "Yes", "<Yes>\n", "") if constraint.matches(t)
    ]
    assert admitted == ["<Yes>", "<No>"]


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (isomer_set("yes"), 'answer.label: expected "Yes" or "No"'),
        (isomer_set(molecules=[]), "answer.molecules: expected a non-empty array"),
        (isomer_set(molecules=["CCO", "C("]), r"answer.molecules\[1\]: not a SMILES"),
        (missing_isomers(missing=[]), "answer.missing_smiles: expected a non-empty array"),
        (missing_isomers(missing=["C1CC1", "C1CC"]), r"answer.missing_smiles\[1\]: RDKit refuses"),
        (missing_isomers(missing=["CN(C)(C)(C)C"]), r"answer.missing_smiles\[0\]: RDKit refuses"),
        (missing_isomers(missing=[3]), r"answer.missing_smiles\[0\]: expected a string"),  # pyright: ignore[reportArgumentType]
        (
            isomer_set() | {"answer": {"molecules": ["CCN"], "label": "No"}},
            "'CCN' is not in the question",
        ),
    ],
)
def test_a_record_that_cannot_be_scored_is_refused(record: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        instance_of(record)


def test_rc_is_two_for_c1_and_the_number_of_missing_isomers_for_c3() -> None:
    assert (YES.rc, YES.num_entities) == (2, 2)
    assert (C3.rc, C3.num_entities) == (3, 2)


HOSTILE = {
    "deep branches": "C(" * 9_000 + "C" + ")" * 9_000,
    "open branches": "C(" * 10_000,
    "open brackets": "[" * 20_000,
    "long chain": "C" * 20_000,
    "a chain within the bound": "C" * 1_000,
    "open rings": "".join(f"C%{i:02d}" for i in range(10, 99)) * 3,
    "dense rings": "[U]123456789" * 80,
    "not ASCII": "Ç" * 500,
    "a NUL": "C\0C",
    "lone surrogate": "C\ud800",
}


@pytest.mark.parametrize("smiles", HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_smiles_is_one_wrong_molecule(smiles: str) -> None:
    score = score_reply(C3, lines(*ALL, smiles))
    assert (score.verdict, score.precision, score.recall) == ("incorrect", 0.75, 1.0)
    assert not score_reply(C3, smiles).correct
    assert not score_reply(C3, lines(*ALL, smiles), scorer="upstream").correct


@pytest.mark.parametrize(
    "reply",
    [
        "\n".join(
            f"<smiles>{'C' * (i % 40 + 1)}N{'C' * (i // 40 % 40)}</smiles>" for i in range(10_000)
        ),
        "<smiles>" * 10_000,
        "</smiles>" * 10_000,
        "<smiles><smiles>C</smiles>" * 3_000,
        "<smiles>" + " " * 20_000 + "<",
        "<yes" + " " * 20_000 + "\n",
        "\n" * 20_000 + "x",
        "_" * 20_000 + "x",
        "answer " * 5_000,
        "<Yes><No>" * 5_000,
        "<Yes> or " * 5_000,
        '{"a": "' * 5_000,
        "=" * 20_000,
        "is C\n" * 5_000,
        "*" * 20_000 + " ",
        "[" * 10_000 + "]" * 10_000,
    ],
    ids=lambda reply: repr(reply[:16]),
)
def test_a_long_reply_gets_a_verdict(reply: str) -> None:
    for instance in (YES, C3):
        for scorer in ("strict", "upstream"):
            assert score_reply(instance, reply, scorer=scorer).verdict in VERDICTS
        assert score_reply(instance, reply, "length").verdict in VERDICTS


def test_released_records_score_their_reference_and_its_mutants_as_they_should(
    shared: Path,
) -> None:
    rng = random.Random(0)
    instances = read_instances(shared / "data" / "rel" / "chemistry", tasks=["REL-C1", "REL-C3"])
    assert len(instances) == 2_000
    for number, instance in enumerate(instances):
        if instance.task == "REL-C1":
            right = f"<{instance.answer['label']}>"
            wrong = "<Yes>" if right == "<No>" else "<No>"
            assert constraint_for(instance).matches(right)
            assert score_reply(instance, right).correct
            assert score_reply(instance, right, scorer="upstream").correct
            assert score_reply(instance, wrong).failure == "wrong_label"
            continue
        # Gold is incomplete in 467 of these; its own set is scored correct in all of them.
        gold = instance.answer["missing_smiles"]
        assert instance.rc == len(gold)
        shuffled = rng.sample(gold, len(gold))
        assert constraint_for(instance).matches(lines(*shuffled))
        assert score_reply(instance, lines(*shuffled)).correct
        if number % 5:
            continue
        assert score_reply(instance, lines(*shuffled), scorer="upstream").correct
        echoed = score_reply(instance, lines(*instance.answer["molecules"]))
        assert (echoed.precision, echoed.recall, echoed.failure) == (0.0, 0.0, "repeats_given")
        fewer = score_reply(instance, lines(*shuffled[1:]))
        assert fewer.recall == pytest.approx((len(gold) - 1) / len(gold))
        assert fewer.failure == ("missing_molecules" if len(gold) > 1 else "no_answer")
