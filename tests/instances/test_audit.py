"""The audit derives every gold afresh: fresh instances are clean, faults are named, and the
released files have the faults that were counted by other means."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rel_batch.errors import ConfigError, DataError, LaunchError
from rel_batch.instances.audit import MEANINGS, AuditRow, audit_record, raw_record
from rel_batch.instances.audit.summary import summarise_audit
from rel_batch.instances.generate import generate
from rel_batch.launch import audit as launch_audit
from rel_batch.launch.audit import audit_files
from rel_batch.store.parquet import read_rows, write_rows
from rel_batch.store.schemas import AUDIT

SIZES: dict[str, dict[str, Any]] = {
    **{f"REL-A{i}": {"size": 4} for i in range(1, 5)},
    "REL-B1": {"rc": [2], "size": 12},
    "REL-C1": {"size": 5},
    "REL-C2": {"size": 4},
    "REL-C3": {"rc": [3], "size": 8},
    "REL-C4": {"rc": [3]},
}


def record(task: str, number: int = 0) -> dict[str, Any]:
    return deepcopy(list(generate(task, per_level=number + 1, seed=3, **SIZES[task]))[number])


def findings(changed: dict[str, Any]) -> tuple[str, ...]:
    return audit_record(raw_record(changed)).findings


@pytest.mark.parametrize("task", SIZES)
def test_a_fresh_instance_is_clean(task: str) -> None:
    for number in range(2):
        found = audit_record(raw_record(record(task, number)))
        assert (found.findings, found.undecided) == ((), ())


@pytest.mark.parametrize("task", ["REL-A1", "REL-A2", "REL-A3", "REL-A4"])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(3, 9), shift=st.integers(1, 7))
def test_a_matrix_with_another_target_is_wrong(task: str, seed: int, size: int, shift: int) -> None:
    (made,) = generate(task, per_level=1, seed=seed, size=size)
    assert findings(made) == ()
    made["answer"] = {"target": (made["answer"]["target"] + shift) % 8}
    assert findings(made) == ("wrong_label",)


def test_a_matrix_may_have_no_or_several_right_choices() -> None:
    none, several = record("REL-A1"), record("REL-A1")
    lines = several["question"].splitlines()
    right = lines.index(next(line for line in lines if line.startswith("Answer 0")))
    gold = several["answer"]["target"]
    value = lines[right + gold].partition(":")[2]
    none["question"] = none["question"].replace(lines[right + gold], f"Answer {gold}: (1, 1, 1)")
    other = (gold + 1) % 8
    lines[right + other] = f"Answer {other}:{value}"
    several["question"] = "\n".join(lines)
    assert findings(none) == ("no_choice_fits",)
    assert findings(several) == ("several_choices_fit",)


OLD = """Complete the Raven's progressive matrix. Only return the missing panel index (1-8)!
{panels}
Answer set:
{choices}"""


@pytest.mark.parametrize(
    ("task", "panels", "choices"),
    [
        ("REL-A1", [[1, 2, 3, 4]] * 8, [[1, 2, 3, 4], [1, 2, 3, 5]]),
        ("REL-A2", [[9 - i, max(0, 6 - i)] * 2 for i in range(8)], [[1, 0] * 2, [1, -2] * 2]),
        ("REL-A3", [[1, 2, 2, 1]] * 8, [[2, 1, 1, 2], [2, 1, 2, 2]]),
        ("REL-A4", [[3, 3, 5, 5]] * 8, [[2, 2, 6, 6], [2, 2, 6, 5]]),
    ],
)
def test_the_older_format_has_the_rules_in_and_between_its_panels(
    task: str, panels: list[list[int]], choices: list[list[int]]
) -> None:
    def show(values: list[int]) -> str:
        return f"{values[:2]}\n{values[2:]}"

    def made(target: int) -> dict[str, Any]:
        printed = [choices[0], *[choices[1]] * 7]
        return {
            "id": "old",
            "task": task,
            "question": OLD.format(
                panels="\n\n".join(f"Panel {i}:\n{show(p)}" for i, p in enumerate(panels)),
                choices="\n".join(f"Answer {i}: {show(c)}" for i, c in enumerate(printed, 1)),
            ),
            "answer": {"target": target},
            "metadata": {},
        }

    assert findings(made(0)) == ()
    assert findings(made(1)) == ("wrong_label",)


def test_taxa_that_do_not_exist_or_share_no_block_are_named() -> None:
    made = record("REL-B1")
    gold = made["answer"]["taxa"]
    names = made["metadata"]["tree"]
    other = next(str(i) for i in range(2, 14) if str(i) not in gold and f"{i}:" in names)
    made["answer"]["taxa"] = [gold[0], "99"]
    assert findings(made) == ("unknown_taxa",)
    made["answer"]["taxa"] = [gold[0], other]
    assert findings(made) == ("no_block",)
    del made["metadata"]["block_len"]
    assert audit_record(raw_record(made)).undecided == ("block",)


def chemistry(task: str, molecules: list[str], **answer: Any) -> dict[str, Any]:
    listed = "\n".join(f"{i}. {smiles}" for i, smiles in enumerate(molecules, 1))
    return {
        "id": "x",
        "task": task,
        "question": f"...\n\nSMILES:\n{listed}\n\nReturn exactly one of:\n<Yes>\nor\n<No>",
        "answer": {"molecules": molecules, **answer},
        "metadata": {},
    }


C1, C2, C3 = "REL-C1", "REL-C2", "REL-C3"
C3H8O = ["CCCO", "CC(C)O"]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (chemistry(C1, ["CCO", "COC"], label="Yes"), ()),
        (chemistry(C1, ["CCO", "COC"], label="No"), ("wrong_label",)),
        (chemistry(C1, ["CCO", "CC=O"], label="Yes"), ("wrong_label",)),
        (chemistry(C1, ["CCO", "OCC"], label="Yes"), ("repeated_molecules",)),
        (chemistry(C2, ["CCCO", "CCCN"], smiles="CCC"), ()),
        (chemistry(C2, ["CCCO", "CCCN"], smiles="CC"), ("not_largest", "more_atoms")),
        (chemistry(C2, ["CCCO", "CCCN"], smiles="CCCO"), ("not_common",)),
        (chemistry(C2, ["OCCCCN", "OCCC(F)CCN"], smiles="CCCCO"), ("equal_alternative",)),
        # Kekule forms of a ring, and hydrogens elsewhere on it, are no other motif.
        (chemistry(C2, ["Oc1ccccc1", "Nc1ccccc1"], smiles="C1=CC=CC=C1"), ()),
        (chemistry(C2, ["Cc1cc[nH]n1", "Cc1ccn[nH]1"], smiles="Cc1cc[nH]n1"), ()),
        (chemistry(C3, C3H8O, missing_smiles=["CCOC"]), ()),
        (chemistry(C3, C3H8O[:1], missing_smiles=["CCOC"]), ("incomplete",)),
        (chemistry(C3, C3H8O, missing_smiles=["CCOC", "COCC"]), ("repeated_in_gold",)),
        (chemistry(C3, C3H8O, missing_smiles=["CCOC", "CCO"]), ("not_missing",)),
        (chemistry(C3, C3H8O, missing_smiles=["CCOC", "OCCC"]), ("given_in_gold",)),
        (chemistry(C3, ["CCO", "CCCO"], missing_smiles=["CCOC"]), ("given_not_isomers",)),
        (chemistry(C3, ["CCO"], missing_smiles=["not SMILES"]), ("unreadable",)),
    ],
)
def test_a_fault_of_a_chemistry_gold_is_named(made: dict[str, Any], found: tuple[str, ...]) -> None:
    assert findings(made) == found


def test_stored_molecules_that_the_question_does_not_list_are_named() -> None:
    made = chemistry(C1, ["CCO", "COC"], label="Yes")
    made["answer"]["molecules"] = ["CCO"]
    assert findings(made) == ("molecules_differ",)


def test_a_universe_that_is_too_large_is_undecided_and_no_fault() -> None:
    found = audit_record(raw_record(chemistry(C3, ["C" * 14], missing_smiles=["CC(C)" + "C" * 11])))
    assert (found.findings, found.undecided) == ((), ("universe",))


def test_molecules_of_too_many_rings_are_undecided() -> None:
    cage = "C12C3C4C1C5C2C3C45"
    found = audit_record(raw_record(chemistry(C2, [".".join([cage] * 3)] * 2, smiles="CC")))
    assert found.undecided == ("largest",)


def test_c4_gold_must_satisfy_the_question_by_any_definition_of_the_group() -> None:
    made = record("REL-C4")
    motifs = made["answer"]["selected_motifs"]
    wrong = deepcopy(made)
    wrong["answer"]["selected_motifs"]["0"] = "CC"
    assert findings(wrong) == ("gold_fails",)
    amines = deepcopy(made)
    kind = made["metadata"]["constraint_type"]
    amines["question"] = made["question"].replace(kind, "total_primary_amines")
    amide = "NC(=O)CCCC"
    for i, smiles in enumerate(made["answer"]["molecules"]):
        # An amide is a primary amine to RDKit's own definition, and none to ours.
        amines["question"] = amines["question"].replace(
            f"{i + 1}. {smiles}\n", f"{i + 1}. {amide}\n"
        )
        amines["answer"]["molecules"][i] = motifs[str(i)] = amide
    target = made["metadata"]["target_value"]
    amines["question"] = (
        amines["question"].replace(f"equals {target}", "equals 0").replace(f"= {target}", "= 0")
    )
    amines["answer"]["selected_motifs"] = dict.fromkeys(motifs, amide)
    amines["metadata"] |= {"constraint_type": "total_primary_amines", "target_value": 0}
    found = audit_record(raw_record(amines))
    assert set(found.findings) == {"repeated_molecules", "ambiguous_count"}
    assert found.detail["total_by_rdkit"] == len(motifs)


# Whole files.


def write(path: Path, records: Iterable[dict[str, Any] | str]) -> Path:
    lines = (one if isinstance(one, str) else json.dumps(one) for one in records)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_ids_that_collide_and_questions_asked_twice_are_named(tmp_path: Path) -> None:
    one, two = record("REL-A1"), record("REL-A2")
    two["id"] = one["id"]
    again = {**one, "id": "again"}
    write(tmp_path / "a.jsonl", [one, "{", again])
    write(tmp_path / "b.jsonl", [two, one])
    rows = audit_files([tmp_path], processes=1)
    assert [(Path(row.file).name, row.line, row.findings) for row in rows] == [
        ("a.jsonl", 1, ("id_collision",)),
        ("a.jsonl", 2, ("unreadable",)),
        ("a.jsonl", 3, ("repeated_question",)),
        ("b.jsonl", 1, ("id_collision",)),
        ("b.jsonl", 2, ("id_collision", "repeated_question")),
    ]
    assert summarise_audit(rows).colliding_ids == 1


def test_the_block_decides_where_taxa_may_be_names_or_positions(tmp_path: Path) -> None:
    made = list(generate("REL-B1", rc=[2], per_level=12, seed=5, size=12))
    named = deepcopy(made)
    for one in named:
        one["answer"]["taxa"] = [int(taxon) for taxon in one["answer"]["taxa"]]
    # Leaves are 2 to 13: without 12 and 13, and 0 and 1, a number is a name and a position.
    kept = [one for one in named if all(2 <= taxon <= 11 for taxon in one["answer"]["taxa"])]
    rows = audit_files([write(tmp_path / "REL-B1.jsonl", kept)], processes=1)
    yes = [row for row in rows if row.findings]
    assert {row.findings for row in yes} == {("notation_unproven",)}
    assert {row.detail["notation"]["taken_as"] for row in yes} == {"names"}


def test_the_rows_come_back_from_parquet(tmp_path: Path) -> None:
    rows = audit_files(["bundled"], processes=1)
    path = tmp_path / "audit.parquet"
    assert write_rows(path, AUDIT, rows, replace=True) == len(rows)
    assert list(read_rows(path, AUDIT)) == rows
    assert polars.read_parquet(path)["line"].to_list() == [row.line for row in rows]


@pytest.mark.parametrize(
    ("sources", "processes", "error"),
    [
        (["nowhere.jsonl"], 1, DataError),
        (["bundled"], 0, ConfigError),
        ([], 1, DataError),
    ],
)
def test_bad_input_is_refused_before_any_work(
    sources: list[str], processes: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        audit_files(sources, processes=processes)


def test_several_processes_give_the_same_rows_in_the_same_order(tmp_path: Path) -> None:
    made = [one for task in ("REL-A1", "REL-A3") for one in generate(task, per_level=60, seed=8)]
    file = write(tmp_path / "a.jsonl", made)
    assert audit_files([file], processes=2) == audit_files([file], processes=1)


def test_an_audit_that_loses_a_process_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "a.jsonl", list(generate("REL-A1", per_level=120, seed=8)))
    monkeypatch.setattr(launch_audit, "_start_process", _die)
    with pytest.raises(LaunchError, match="was killed"):
        audit_files([file], processes=2)


def _die() -> None:
    os._exit(9)


def test_every_finding_has_a_meaning(shared: Path) -> None:
    rows = audit_files([shared / "data/regenerated"], processes=1)
    assert {name for row in rows for name in row.findings} <= MEANINGS.keys()


# The released files, against what was counted by other means.


def count(rows: Iterable[AuditRow]) -> Counter[str]:
    return Counter(name for row in rows for name in (*row.findings, *row.undecided))


def test_the_released_algebra_has_500_colliding_ids_and_no_wrong_label(shared: Path) -> None:
    rows = audit_files([shared / "data/rel/algebra"], processes=1)
    assert (len(rows), summarise_audit(rows).colliding_ids) == (1_000, 500)
    assert count(rows) == {"id_collision": 1_000}


def test_the_older_algebra_has_no_wrong_label(shared: Path) -> None:
    rows = audit_files([shared / "data/rel/algebra_v1"], processes=1)
    assert len(rows) == 100
    assert count(rows) == {}


def test_the_released_c1_has_no_wrong_label(shared: Path) -> None:
    rows = audit_files([shared / "data/rel/chemistry/REL-C1.jsonl"], processes=1)
    assert len(rows) == 1_000
    assert count(rows) == {}


def test_the_released_c3_is_incomplete_467_times_and_lacks_158_isomers(shared: Path) -> None:
    rows = audit_files([shared / "data/rel/chemistry/REL-C3.jsonl"], processes=1)
    absent = summarise_audit(rows).absent_isomers
    assert count(rows) == {"incomplete": 467}
    assert (len(absent), sum(map(len, absent.values()))) == (23, 158)
    assert "BrC1=C(Br)CC1" in absent["C4H4Br2"]
    assert "CC1=CC1Cl" in absent["C4H5Cl"]


def test_a_sample_of_the_released_c2_has_the_faults_that_were_found(
    shared: Path, tmp_path: Path
) -> None:
    wanted = {
        "q2_n5_00001": (),
        "q2_n5_00011": ("equal_alternative",),
        "q2_n5_00014": ("equal_alternative",),
        "q2_n5_00016": ("more_atoms",),
        "q2_n5_00039": ("equal_alternative",),
    }
    lines = (shared / "data/rel/chemistry/REL-C2.jsonl").read_text().splitlines()
    sample = write(
        tmp_path / "REL-C2.jsonl", [line for line in lines if json.loads(line)["id"] in wanted]
    )
    rows = audit_files([sample], processes=1)
    assert {row.id: row.findings for row in rows} == wanted
