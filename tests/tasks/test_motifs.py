"""REL-C2 and REL-C4: which motifs are right, and why the others are not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
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


# A lattice of six-membered rings holds no odd ring, and a search tries every path to find that out.
LATTICE = (
    "CC1CC2CC3CC4CCCC5C6CCC7C8CCCC9CC%10CC%11CC(C)C%12CCC%13C%14CCC1C"
    "1C2C2C3C(C45)C3C6C7C4C(C98)C%10C5C%11C%12C%13C6C(C%141)C2C3C4C56"
)


def common_motif(
    smiles: str = "CCc1ccccc1", molecules: Sequence[str] = ("CCc1ccccc1O", "NCCc1ccccc1")
) -> dict[str, Any]:
    listed = "\n".join(f"{i}. {text}" for i, text in enumerate(molecules, 1))
    return {
        "id": "c2",
        "domain": "chemistry",
        "task": "REL-C2",
        "question": f"Which motif?\n\nSMILES:\n{listed}\n\n<smiles>YOUR_SMILES_HERE</smiles>",
        "answer": {"molecules": list(molecules), "smiles": smiles},
        "metadata": {},
    }


PARENTS = ("CCCCCC(=O)C", "OCCCCCCO", "Cc1ccccc1CC")
STORED = {"0": "CCCCC(C)=O", "1": "CCCCCCO", "2": "CCc1ccccc1"}


def motif_selection(
    motifs: Mapping[str, Any] = STORED,
    *,
    counted: Any = "total_ketones",
    target: Any = 1,
    least: Any = 6,
    asked: str | None = None,
) -> dict[str, Any]:
    listed = "\n".join(f"{i}. {text}" for i, text in enumerate(PARENTS, 1))
    asked = asked or (
        f"2. Ensure the total count of {counted} across ALL motifs equals {target}\n"
        f"- Each motif must contain at least {least} heavy atoms (non-hydrogen)\n"
        f"- The sum of {counted} across all selected motifs = {target}\n"
    )
    return {
        "id": "c4",
        "domain": "chemistry",
        "task": "REL-C4",
        "question": f"One motif from EACH molecule.\n{asked}\nMOLECULES:\n{listed}",
        "answer": {"molecules": list(PARENTS), "selected_motifs": dict(motifs)},
        "metadata": {"constraint_type": counted, "target_value": target, "min_motif_atoms": least},
    }


C2, C4 = instance_of(common_motif()), instance_of(motif_selection())


def tag(smiles: str) -> str:
    return f"<smiles>{smiles}</smiles>"


def selection(motifs: Mapping[str, str] = STORED, indices: str = "0,1,2") -> str:
    tags = "".join(f"\n<motif_{i}>{motif}</motif_{i}>" for i, motif in motifs.items())
    return f"<indices>{indices}</indices>{tags}"


# C2


@pytest.mark.parametrize(
    "reply",
    [
        tag("CCc1ccccc1"),
        tag("c1cccc(CC)c1"),
        tag("C1=CC=CC=C1CC"),  # a Kekule spelling
        tag("[13CH3]Cc1ccccc1"),
        tag("\nCCc1ccccc1\n"),
        tag("`CCc1ccccc1`"),
        tag("CCc1ccccc1 ethylbenzene"),
        tag("CCc1ccccc1").upper().replace("CCC1CCCCC1", "CCc1ccccc1"),
        "<smiles>CCc1ccccc1",  # left open, and the model stopped there by itself
        "<smiles>CCc1ccccc1\nThat is the motif.",
        f"I wrap it as {tag('YOUR_SMILES_HERE')}.\n\n{tag('CCc1ccccc1')}",
        f"<think>{tag('c1ccccc1')}</think>{tag('CCc1ccccc1')}",
        f"{tag('CCc1ccccc1')}\n{tag('c1ccccc1CC')}",  # twice the same
        f"{tag('c1ccccc1')} is shared, but it can be extended.\n\n{tag('CCc1ccccc1')}",
        f"{tag('c1ccccc1')}\n\nNo, it extends to ethyl.\n\n{tag('CCc1ccccc1')}",
        f"Not {tag('c1ccccc1')}. Final answer: {tag('CCc1ccccc1')}.",
        "The largest common motif is CCc1ccccc1",
        "The answer is: `CCc1ccccc1`.",
        "CCc1ccccc1",
        r"\boxed{\text{CCc1ccccc1}}",
        '{"smiles": "CCc1ccccc1"}',
        "```\nCCc1ccccc1\n```",
    ],
)
def test_c2_is_right_where_the_stated_molecule_is_golds(reply: str) -> None:
    assert score_reply(C2, reply) == Score("correct", "CCc1ccccc1")


@pytest.mark.parametrize(
    ("reply", "failure", "prediction"),
    [
        (tag("Cc1ccccc1"), "wrong_molecule", "Cc1ccccc1"),
        (tag("C1CCCCC1CC"), "wrong_molecule", "CCC1CCCCC1"),
        (tag("CCc1ccccc1.C"), "disconnected", "C.CCc1ccccc1"),
        (tag("ethylbenzene"), "unparsable_smiles", "ethylbenzene"),
        (tag("CCc1ccccc"), "unparsable_smiles", "CCc1ccccc"),
        ("<smiles>CCc1ccc", "unparsable_smiles", "CCc1ccc"),
        (tag("C" * 20_000), "unparsable_smiles", "C" * 20_000),
    ],
)
def test_c2_wrong_answers_say_why(reply: str, failure: str, prediction: str) -> None:
    assert score_reply(C2, reply) == Score("incorrect", prediction, failure)


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        ("", "no_answer"),
        ("<smiles></smiles>", "no_answer"),
        (tag("YOUR_SMILES_HERE"), "no_answer"),
        ("I'm sorry, I cannot determine the maximum common substructure.", "no_answer"),
        ("The answer is no", "no_answer"),
        ("I", "no_answer"),  # a word, though also iodine
        ("Ethylbenzene", "no_answer"),
        (f"Either {tag('CC')} or {tag('CCC')}; I cannot decide.", "contradictory"),
        (f"{tag('CC')}\n{tag('CCC')}", "contradictory"),
        (f"It has {tag('CC')} in it and {tag('CCC')} too", "contradictory"),
        ("CCO\nCCN", "contradictory"),
    ],
)
def test_c2_without_one_molecule_is_unparsed(reply: str, failure: str) -> None:
    assert score_reply(C2, reply) == Score("unparsed", None, failure)


@pytest.mark.parametrize(
    ("reply", "is_read"),
    [
        (tag("CCc1ccccc1"), True),
        (tag("CCc1ccccc1") + "\nbecause", True),
        (f"The answer is {tag('CCc1ccccc1')} as", True),
        ("<smiles>CCc1ccccc1", False),
        (f"Perhaps {tag('CCc1ccccc1')} can be ext", False),
        ("The largest common motif is CCc1ccccc1", False),
    ],
)
def test_c2_cut_by_the_limit_counts_only_what_was_stated_before(reply: str, is_read: bool) -> None:
    score = score_reply(C2, reply, finish_reason="length")
    wanted = Score("correct", "CCc1ccccc1") if is_read else Score("unparsed", None, "truncated")
    assert score == wanted


@pytest.mark.parametrize(
    ("reply", "overlap"),
    [
        (tag("CCc1ccccc1"), 1.0),
        (tag("Cc1ccccc1"), 7 / 8),
        (tag("CCCc1ccccc1"), 8 / 9),
        (tag("Nc1ccccc1CCO"), 8 / 10),
        (tag("C1CC"), 0.0),
        (tag("[Na]"), 0.0),
        ("", None),
        (tag(LATTICE), None),  # too many rings to be searched in bounded time
    ],
)
def test_c2_overlap_is_the_share_of_the_larger_molecule_and_only_on_request(
    reply: str, overlap: float | None
) -> None:
    assert score_reply(C2, reply).overlap is None
    assert score_reply(C2, reply, overlap=True).overlap == (
        overlap if overlap is None else pytest.approx(overlap)
    )


# C4


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (selection(), "the stored answer"),
        (selection({"0": "O=C(C)CCCC", "1": "C(O)CCCCC", "2": "c1ccccc1CC"}), "respelled"),
        (selection(STORED | {"1": "OCCCCCC", "2": "Cc1ccccc1"}), "other valid motifs"),
        (selection({"2": "Cc1ccccc1C", "0": "CCCC(C)=O", "1": "OCCCCCCO"}), "any order"),
        (selection(indices="2, 0, 1"), "indices in any order"),
        (selection(indices="[0, 1, 2]"), "brackets"),
        (selection().upper().replace("CCC1CCCCC1", "CCc1ccccc1"), "any case of the tags"),
        (selection() + "\n<motif_0>CCCCC(C)=O</motif_0>", "the same motif again"),
        (f"Selected:\n```\n{selection()}\n```\nSum = 1.", "prose around"),
        (f"<think>{selection({'0': 'CC'}, '0')}</think>{selection()}", "a thought"),
        (f"{selection({'0': 'CCCCCC', '1': 'CC'}, '0,1')}\n\nBetter:\n{selection()}", "the last"),
        (json.dumps({"indices": [0, 1, 2], "motifs": STORED}), "JSON"),
        (selection().replace("</motif_2>", ""), "the last tag left open"),
    ],
)
def test_c4_any_answer_that_satisfies_the_question_is_right(reply: str, why: str) -> None:
    score = score_reply(C4, reply)
    assert (score.verdict, score.failure) == ("correct", None), why
    assert set(score.prediction["indices"]) == {0, 1, 2}
    assert set(score.prediction["motifs"]) == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (selection({"0": STORED["0"], "1": STORED["1"]}, "0,1"), "wrong_indices"),
        (selection(indices="0,0,1,2"), "wrong_indices"),
        (selection({"1": "CCCCCC", "2": "CCCCCC", "3": "CCCCCC"}, "1,2,3"), "wrong_indices"),
        (selection(STORED | {"3": "CCCCCC"}), "wrong_indices"),
        (selection() + "\n<motif_0>CCCCCC=O</motif_0>", "two_motifs"),
        (selection(STORED | {"1": "C1CCCCC"}), "unparsable_smiles"),
        (selection(STORED | {"1": "C" * 20_000}), "unparsable_smiles"),
        (selection(STORED | {"1": "CCC.CCC"}), "disconnected"),
        (selection(STORED | {"1": "CCCCC"}), "too_small"),
        (selection(STORED | {"1": "[H]C([H])([H])CCCC"}), "too_small"),  # hydrogens are not heavy
        (selection(STORED | {"1": "CCCCCN"}), "not_a_substructure"),
        (selection(STORED | {"1": "CCc1ccccc1", "2": "CCCCCCO"}), "not_a_substructure"),  # swapped
        (selection(STORED | {"1": "OCCCCCCOC"}), "not_a_substructure"),
        (selection(STORED | {"0": "CCCCCC=O"}), "wrong_total"),  # an aldehyde
    ],
)
def test_c4_wrong_answers_say_why(reply: str, failure: str) -> None:
    score = score_reply(C4, reply)
    assert (score.verdict, score.failure) == ("incorrect", failure)
    assert score.prediction["motifs"]


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        ("", "no_answer"),
        ("I'm sorry, this is too complex to solve.", "no_answer"),
        ("\n".join(map(tag, STORED.values())), "no_answer"),  # the wrong tags
        ("\n".join(selection().splitlines()[1:]), "no_answer"),  # no indices
        (selection(indices="all"), "no_answer"),
        (selection(indices="0-2"), "no_answer"),
        (selection({"0": STORED["0"], "1": STORED["1"]}), "missing_motif"),
        (selection(STORED | {"1": ""}), "missing_motif"),
        (f"<think>{selection()}", "no_answer"),
    ],
)
def test_c4_an_incomplete_answer_is_unparsed(reply: str, failure: str) -> None:
    assert score_reply(C4, reply) == Score("unparsed", None, failure)


def test_c4_cut_by_the_limit_counts_where_every_tag_was_closed() -> None:
    assert score_reply(C4, selection() + "\n\nThe sum", finish_reason="length").correct
    for cut in range(len(selection())):
        score = score_reply(C4, selection()[:cut], finish_reason="length")
        assert score == Score("unparsed", None, "truncated")


@pytest.mark.parametrize(
    ("counted", "motif", "count"),
    [
        ("total_ketones", "CC(=O)CC(C)=O", 2),
        ("total_ketones", "CC(=O)OC", 0),
        ("total_ketones", "O=C1CCCCC1", 1),
        ("total_carboxylic_acids", "OC(=O)CCC(=O)O", 2),
        ("total_carboxylic_acids", "COC(=O)CCC=O", 0),
        ("total_alcohols", "OCC(O)CCO", 3),
        ("total_alcohols", "Oc1ccccc1", 0),
        ("total_alcohols", "OC(=O)CCCC", 0),
        ("total_primary_amines", "NCCCCN", 2),
        ("total_primary_amines", "NC(=O)CCCCC", 0),
        ("total_primary_amines", "Nc1ccccc1", 1),
        ("total_primary_amines", "NS(=O)(=O)c1ccccc1", 0),
        ("total_aromatic_rings", "c1ccc2ccccc2c1", 2),
        ("total_aromatic_rings", "C1CCCCC1", 0),
        ("total_aromatic_rings", "c1ccc2c(c1)CCN2", 1),
    ],
)
def test_c4_groups_are_counted_on_the_motif_as_a_molecule_of_its_own(
    counted: str, motif: str, count: int
) -> None:
    record = motif_selection(counted=counted, target=count, least=1)
    record["answer"] = {"molecules": [motif], "selected_motifs": {"0": motif}}
    record["question"] += f"\n1. {motif}"
    instance = instance_of(record)
    assert score_reply(instance, selection({"0": motif}, "0")).correct


def test_c4_a_search_that_does_not_end_gives_a_verdict() -> None:
    record = motif_selection(counted="total_ketones", target=0)
    record["answer"] = {"molecules": [LATTICE], "selected_motifs": {"0": "CCCCCC"}}
    record["question"] += f"\n1. {LATTICE}"
    instance = instance_of(record)
    assert score_reply(instance, selection({"0": "C1CCCCC1"}, "0")).correct
    score = score_reply(instance, selection({"0": "C1" + "C" * 29 + "C1"}, "0"))
    assert score.failure == "undecided_substructure"


# Both


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (common_motif(smiles="C1CC"), "answer.smiles: expected a SMILES"),
        (common_motif(smiles=None), "answer.smiles: expected a SMILES"),  # pyright: ignore[reportArgumentType]
        (common_motif(molecules=["C("]), r"answer.molecules\[0\]: not a SMILES"),
        (motif_selection(counted="total_esters"), "metadata.constraint_type: expected one of"),
        (motif_selection(target="1"), "metadata.target_value: expected an integer"),
        (motif_selection(target=-1), "metadata.target_value: expected an integer"),
        (motif_selection(least=0), "metadata.min_motif_atoms: expected an integer"),
        (motif_selection(asked="equals"), "metadata.target_value: 1, but the question says"),
        (
            motif_selection(asked="total_ketones = 2\nat least 6 heavy atoms"),
            r"metadata.target_value: 1, but the question says \[2\]",
        ),
        (
            motif_selection(asked="total_ketones = 1\nat least 5 heavy atoms"),
            r"metadata.min_motif_atoms: 6, but the question says \[5\]",
        ),
        (motif_selection({"0": "CC", "1": "CC"}), "answer.selected_motifs: expected an object"),
        (motif_selection(STORED | {"2": "C("}), r"answer.selected_motifs\[2\]: not a SMILES"),
    ],
)
def test_a_record_that_cannot_be_scored_is_refused(record: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        instance_of(record)


def test_rc_is_two_for_c2_and_the_number_of_molecules_for_c4() -> None:
    assert (C2.rc, C2.num_entities) == (2, 2)
    assert (C4.rc, C4.num_entities) == (3, 3)


@pytest.mark.parametrize(
    ("reply", "is_admitted"),
    [
        (selection(), True),
        (selection(dict.fromkeys("012", "(((")), True),  # the envelope, not the grammar
        (selection(indices="0, 1, 2"), False),
        (selection(indices="2,1,0"), False),
        (selection() + "\n", False),
        (selection({"0": "C", "1": "C"}), False),
        (selection({"0": "C", "2": "C", "1": "C"}), False),
        (selection(STORED | {"1": ""}), False),
        (selection(STORED | {"1": "C C"}), False),
    ],
)
def test_c4_format_is_all_indices_and_one_motif_each_in_order(
    reply: str, is_admitted: bool
) -> None:
    assert constraint_for(C4).matches(reply) == is_admitted


@given(st.text(alphabet=SMILES_CHARS, min_size=1, max_size=12))
def test_what_the_format_admits_is_never_unparsed(content: str) -> None:
    for instance, reply in ((C2, tag(content)), (C4, selection(STORED | {"1": content}))):
        assert constraint_for(instance).matches(reply)
        assert score_reply(instance, reply).parsed


@pytest.mark.parametrize("finish_reason", ["stop", "length"])
@pytest.mark.parametrize("instance", [C2, C4], ids=["c2", "c4"])
@settings(max_examples=80, deadline=None)
@given(
    reply=st.text()
    | st.text(alphabet=SMILES_CHARS + '<>/ \n_smilesmotifindices,"{}')
    | st.lists(
        st.sampled_from(
            [*"<>/,;\n ", "<smiles>", "</smiles>", "CC", "C1", "<indices>", "</indices>", "0,1,2"]
            + [f"{end}motif_{i}>" for i in range(4) for end in ("<", "</")]
        )
    ).map("".join)
)
def test_scoring_is_total_and_pure(instance: Any, finish_reason: str, reply: str) -> None:
    first = score_reply(instance, reply, finish_reason)
    assert score_reply(instance, reply, finish_reason) == first
    assert first.failure is not None or first.correct
    score_reply(instance, reply, scorer="upstream")
    json.dumps(first.prediction)


@pytest.mark.parametrize(
    "reply",
    [
        tag("C1" + "C" * 40 + "C1"),
        tag(LATTICE),
        "\n".join(tag("C" * (i % 40 + 1) + "N" * (i // 40 % 40)) for i in range(10_000)),
        selection({str(i): "CCCCCC" for i in range(10_000)}, ",".join(map(str, range(10_000)))),
        "<indices>" + "0," * 10_000 + "0</indices>",
        "<indices>" + " " * 20_000 + "<",
        "<indices>0" + " " * 20_000 + "x</indices>",
        "<motif_0>" * 10_000,
        '"indices": [' * 5_000,
        '"0": "' * 5_000,
        "C(" * 10_000,
    ],
    ids=lambda reply: repr(reply[:24]),
)
def test_a_long_or_hostile_reply_gets_a_verdict(reply: str) -> None:
    for instance in (C2, C4):
        for scorer in ("strict", "upstream"):
            assert score_reply(instance, reply, scorer=scorer).verdict in VERDICTS
        assert score_reply(instance, reply, "length").verdict in VERDICTS


def respelled(smiles: str, rng: random.Random) -> str:
    molecule = Chem.MolFromSmiles(smiles)
    return Chem.MolToRandomSmilesVect(molecule, 1, randomSeed=rng.randrange(2**31))[0]


def test_released_c2_records_score_gold_in_any_spelling_and_nothing_smaller(shared: Path) -> None:
    rng = random.Random(0)
    instances = read_instances(shared / "data" / "rel" / "chemistry", tasks=["REL-C2"])
    assert len(instances) == 1_016
    for instance in instances:
        gold = instance.answer["smiles"]
        assert constraint_for(instance).matches(tag(gold))
        assert score_reply(instance, tag(gold)).correct
        assert score_reply(instance, tag(gold), scorer="upstream").correct
        assert score_reply(instance, tag("C" + gold)).failure in {
            "wrong_molecule",
            "unparsable_smiles",
        }
    for instance in rng.sample(instances, 200):
        assert score_reply(instance, tag(respelled(instance.answer["smiles"], rng))).correct


def test_regenerated_c4_records_accept_the_stored_answer_and_no_broken_one(shared: Path) -> None:
    rng = random.Random(0)
    instances = read_instances(shared / "data" / "regenerated" / "REL-C4.jsonl")
    assert len(instances) == 29
    for instance in instances:
        stored: dict[str, str] = instance.answer["selected_motifs"]
        indices = ",".join(map(str, range(instance.rc)))
        reply = selection(dict(sorted(stored.items(), key=lambda item: int(item[0]))), indices)
        assert constraint_for(instance).matches(reply)
        assert score_reply(instance, reply).correct
        assert score_reply(instance, reply, scorer="upstream").correct
        other = {index: respelled(motif, rng) for index, motif in stored.items()}
        assert score_reply(instance, selection(other, indices)).correct
        index = rng.choice(list(stored))
        breaking: dict[str, Callable[[str], str]] = {
            "unparsable_smiles": lambda motif: motif + "(",
            "disconnected": lambda motif: motif + ".C",
            "too_small": lambda _: "CC",
            "not_a_substructure": lambda _: "FC1(I)CC1(Br)CS",
        }
        for failure, damage in breaking.items():
            broken = selection(stored | {index: damage(stored[index])}, indices)
            assert score_reply(instance, broken).failure == failure
