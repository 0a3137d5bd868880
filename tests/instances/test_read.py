"""Reading instances: what is accepted, and one clear sentence for everything that is not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rel_batch import read_instances
from rel_batch.errors import ConfigError, DataError
from rel_batch.instances import InstanceSet, instance_of, lines
from rel_batch.instances.notation import in_names
from rel_batch.tasks import TASKS

CHOICES = "\n".join(f"Answer {i}: ({i}, {i + 1})" for i in range(8))
ALGEBRA: dict[str, Any] = {
    "id": "algebra_REL-A1_00000",
    "domain": "algebra",
    "task": "REL-A1",
    "question": f"row 1: (1, 2), (1, 2); row 2: (3, 4), \n\nAnswer set:\n{CHOICES}",
    "answer": {"target": 3},
    "metadata": {"panels": [1.5, 2]},
}
FASTA = "\n".join(f">{name}\nACGT" for name in ("2", "3", "10", "4"))


def homoplasy(*taxa: object, number: int = 0) -> dict[str, Any]:
    return {
        "id": f"biology_REL-B1_{number:05d}",
        "task": "REL-B1",
        "question": f"Alignment (FASTA):\n{FASTA}\n\nYes or No?",
        "answer": {"label": "yes" if taxa else "no", "taxa": list(taxa)},
        "metadata": {},
    }


def algebra(**changes: Any) -> dict[str, Any]:
    return {**ALGEBRA, **changes}


@pytest.fixture(name="write")
def fixture_write(tmp_path: Path) -> Callable[..., Path]:
    def write(*records: dict[str, Any] | str | bytes, name: str = "REL-A1_2x2.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [json.dumps(r) if isinstance(r, dict) else r for r in records]
        path.write_bytes(b"\n".join(t.encode() if isinstance(t, str) else t for t in texts))
        return path

    return write


def test_a_record_becomes_an_instance(write: Callable[..., Path]) -> None:
    (instance,) = read_instances(write(ALGEBRA))
    assert (instance.task, instance.subset, instance.rc, instance.num_entities) == (
        *("REL-A1", "2x2"),
        *(2, 3),
    )
    assert instance.id == ALGEBRA["id"]
    assert instance.question == ALGEBRA["question"]
    assert instance.answer == {"target": 3}
    assert instance.metadata == ALGEBRA["metadata"]
    assert instance.source_file == "REL-A1_2x2.jsonl"
    assert len(instance.key) == 16
    assert set(instance.key) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    ("name", "subset"),
    [
        ("REL-A1_3x3.jsonl", "3x3"),
        ("REL-A1_hard_ones.jsonl", "hard_ones"),
        ("REL-A1.jsonl", "2x2"),  # what the question says, where the name does not
        ("mine.jsonl", "2x2"),
        ("REL-A1_x.y.jsonl", "x.y"),
    ],
)
def test_the_subset_is_what_the_name_of_the_file_adds_to_the_task(
    write: Callable[..., Path], name: str, subset: str
) -> None:
    assert read_instances(write(ALGEBRA, name=name))[0].subset == subset


def test_a_key_depends_on_the_content_and_on_the_name_of_the_file_and_on_nothing_else(
    write: Callable[..., Path],
) -> None:
    def key(record: dict[str, Any], name: str = "a.jsonl") -> str:
        return read_instances(write(record, name=name))[0].key

    first = key(ALGEBRA)
    assert key(dict(reversed(ALGEBRA.items()))) == first
    assert key(algebra(extra="field", domain="other")) == first
    assert key(ALGEBRA, "folder/a.jsonl") == first
    others = [key(ALGEBRA, "b.jsonl"), key(algebra(id="x")), key(algebra(answer={"target": 4}))]
    assert len({first, *others, key(algebra(metadata={}))}) == 5


def test_blank_lines_a_byte_order_mark_and_crlf_do_not_matter(write: Callable[..., Path]) -> None:
    path = write(b"\xef\xbb\xbf" + json.dumps(ALGEBRA).encode() + b"\r", b"", b"  \r", b"")
    assert len(read_instances(path)) == 1


BAD: list[tuple[dict[str, Any] | str | bytes, str]] = [
    ("{", "line: is not JSON"),
    ("not json", "line: is not JSON"),
    ("[1]", "line: expected a JSON object, found an array"),
    ("3", "line: expected a JSON object, found a number"),
    ("null", "line: expected a JSON object, found null"),
    (b'{"id": "\xff"}', r"line: is not UTF-8 text \(byte 8"),
    ('{"a": 1, "a": 2}', "line: has the key 'a' twice"),
    ('{"a": NaN}', "line: holds NaN, which is not JSON"),
    ('{"a": ' + "9" * 5000 + "}", "line: is not JSON that can be held"),
    ("[" * 100_000, "line: is nested too deep"),
    ('{"a":' * 100_000, "line: is nested too deep"),
    (algebra(id=None), "id: expected a string, found null"),
    (algebra(id=3), "id: expected a string, found a number"),
    (algebra(question=["x"]), "question: expected a string, found an array"),
    (algebra(question=" "), "question: is empty"),
    (algebra(answer="3"), "answer: expected an object, found a string"),
    (algebra(answer={}), "answer.target: expected an integer 0-7, found None"),
    (algebra(metadata=True), "metadata: expected an object, found true"),
    (algebra(task="REL-A7"), "task: unknown task 'REL-A7'; did you mean 'REL-A"),
    (algebra(task="rel-a1"), "task: unknown task 'rel-a1'; did you mean 'REL-A1'"),
    ({k: v for k, v in ALGEBRA.items() if k != "answer"}, "answer: is missing; the record has dom"),
    (algebra(id="\ud800"), "line: holds half a surrogate pair"),
    (json.dumps(ALGEBRA).replace("1.5", "1e999"), "line: holds a number that is too large"),
    (ALGEBRA, r"line: repeats the record of \S+REL-A1_2x2.jsonl:1"),
]


@pytest.mark.parametrize(("bad", "complaint"), BAD, ids=[c[:40] for _, c in BAD])
def test_a_bad_line_stops_with_its_place_its_field_and_what_was_expected(
    write: Callable[..., Path], bad: dict[str, Any] | str | bytes, complaint: str
) -> None:
    path = write(ALGEBRA, "", bad, algebra(id="last"))
    with pytest.raises(DataError, match=rf"^{path}:3: {complaint}") as raised:
        read_instances(path)
    assert "skip_bad" in str(raised.value)
    assert len(str(raised.value)) < 1_000


def test_bad_lines_are_left_out_counted_and_listed_on_request(write: Callable[..., Path]) -> None:
    path = write(algebra(id="first"), *(bad for bad, _ in BAD[:-1]), ALGEBRA)
    found = read_instances(path, skip_bad=True)
    assert isinstance(found, InstanceSet)
    assert [instance.id for instance in found] == ["first", ALGEBRA["id"]]
    assert [complaint.split(":")[1] for complaint in found.skipped] == [
        str(number) for number in range(2, len(BAD) + 1)
    ]
    assert found.skipped[0].startswith(f"{path}:2: line: is not JSON")


def test_an_endless_line_is_refused_without_being_held(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 2_000)
    path = write(ALGEBRA, " " * 10_000 + "x", algebra(id="b"))
    with pytest.raises(DataError, match=":2: line: is longer than 2,000 bytes"):
        read_instances(path)
    found = read_instances(path, skip_bad=True)
    assert [instance.id for instance in found] == [ALGEBRA["id"], "b"]


def test_a_source_is_a_file_a_folder_a_glob_or_several_and_no_file_is_read_twice(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    write(ALGEBRA, name="a/REL-A1.jsonl")
    write(ALGEBRA, name="a/deep/REL-A2.jsonl")
    write("no instances", name="a/README.md")
    assert len(read_instances(tmp_path / "a")) == 2
    assert len(read_instances(str(tmp_path / "a" / "*.jsonl"))) == 1
    assert len(read_instances(str(tmp_path / "**" / "*.jsonl"))) == 2
    assert len(read_instances([tmp_path / "a", str(tmp_path / "a" / "REL-A1.jsonl")])) == 2


def test_the_same_record_in_two_files_of_one_name_is_a_repetition(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    write(ALGEBRA, name="a/x.jsonl")
    write(ALGEBRA, name="b/x.jsonl")
    with pytest.raises(DataError, match=r"b/x.jsonl:1: line: repeats the record of .*a/x.jsonl:1"):
        read_instances(tmp_path)


def test_only_the_tasks_asked_for_are_read(write: Callable[..., Path]) -> None:
    path = write(ALGEBRA, algebra(task="REL-A2"))
    assert [i.task for i in read_instances(path, tasks=["REL-A2"])] == ["REL-A2"]
    with pytest.raises(DataError, match="no record of REL-C1 in"):
        read_instances(path, tasks=["REL-C1"])
    with pytest.raises(ConfigError, match="unknown task 'REL-X1'"):
        read_instances(path, tasks=["REL-X1"])


def test_a_source_that_holds_nothing_says_so(write: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match=r"the folder .*nothing holds no .jsonl file"):
        read_instances(tmp_path / "nothing")
    for content in (b"", b"\n \n", b"\xef\xbb\xbf"):
        with pytest.raises(
            DataError, match=r"empty.jsonl is empty: expected one REL record a line"
        ):
            read_instances(write(content, name="empty.jsonl"))
    with pytest.raises(DataError, match="no usable record in") as raised:
        read_instances(write("{", name="bad.jsonl"), skip_bad=True)
    assert "1 bad lines were left out" in str(raised.value)


def test_a_source_that_does_not_exist_is_answered_with_the_nearest_that_does(
    write: Callable[..., Path],
) -> None:
    path = write(ALGEBRA)
    with pytest.raises(DataError, match=r"REL-A1_2x3.jsonl does not exist") as raised:
        read_instances(path.with_name("REL-A1_2x3.jsonl"))
    assert "did you mean REL-A1_2x2.jsonl?" in str(raised.value)
    with pytest.raises(DataError, match="bundeld does not exist") as raised:
        read_instances("bundeld")
    assert "did you mean bundled?" in str(raised.value)
    for odd in ("a\0b", "x" * 5_000):
        with pytest.raises(DataError):
            read_instances(odd)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    with pytest.raises(DataError, match=r"cannot read .*loop.jsonl: Too many levels"):
        read_instances(tmp_path)
    folder = tmp_path / "folder.jsonl"
    folder.mkdir()
    with pytest.raises(DataError, match=r"folder.jsonl holds no .jsonl file"):
        read_instances(folder)


@pytest.mark.parametrize(
    ("taxa", "notation", "names"),
    [
        ([[2, 4]], "names", ["2", "4"]),
        ([["2", "10"]], "names", ["2", "10"]),
        ([[1, 3]], "positions", ["2", "4"]),  # sorted as strings: 10, 2, 3, 4
        ([[10, 2]], "auto", ["10", "2"]),  # 10 is no position
        ([["3", "2"]], "auto", ["3", "2"]),  # a text is no position
        ([[0, 2]], "auto", ["10", "3"]),  # 0 is no name
        ([[2, 3], [2, 10]], "auto", ["2", "3"]),  # the whole file decides
        ([[2, 3], [0, 2]], "auto", ["3", "4"]),
        ([[]], "auto", []),
    ],
)
def test_gold_taxa_are_names_whatever_the_file_holds(
    write: Callable[..., Path], taxa: list[list[object]], notation: Any, names: list[str]
) -> None:
    records = [homoplasy(*listed, number=number) for number, listed in enumerate(taxa)]
    instance = read_instances(write(*records, name="REL-B1.jsonl"), taxa_notation=notation)[0]
    assert instance.answer["taxa"] == names
    assert instance.rc == len(names)


def test_a_file_that_does_not_say_what_its_taxa_are_is_refused(write: Callable[..., Path]) -> None:
    path = write(homoplasy(2, 3), homoplasy(number=1), name="REL-B1.jsonl")
    with pytest.raises(DataError, match=f"^{path}: answer.taxa: each of the 2 gold taxa") as raised:
        read_instances(path)
    assert "set taxa_notation: names" in str(raised.value)
    assert len(read_instances([path], taxa_notation="names")) == 2


def test_a_file_that_mixes_the_notations_is_refused(write: Callable[..., Path]) -> None:
    path = write(homoplasy(2, 10), homoplasy(0, 2, number=1), name="REL-B1.jsonl")
    with pytest.raises(DataError, match=f"^{path}:2: answer.taxa: 0 is a position .* on line 1 10"):
        read_instances(path, skip_bad=True)


@pytest.mark.parametrize(
    ("taxa", "notation", "complaint"),
    [
        ([2, 5], "names", "5 is no name of the alignment"),
        ([2, 4], "positions", "expected positions 0-3, found 4"),
        (["2"], "positions", "expected positions 0-3, found '2'"),
        ([True], "names", "True is no name"),
        ([None], "auto", "None is no name"),
        ([[2]], "auto", r"\[2\] is no name"),
        ([2.0], "names", "2.0 is no name"),
    ],
)
def test_a_taxon_that_its_notation_does_not_hold_is_a_bad_line(
    write: Callable[..., Path], taxa: list[object], notation: Any, complaint: str
) -> None:
    path = write(homoplasy(*taxa), name="REL-B1.jsonl")
    with pytest.raises(DataError, match=f"^{path}:1: answer.taxa: {complaint}"):
        read_instances(path, taxa_notation=notation)


def test_an_unknown_notation_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="unknown taxa_notation 'name'; did you mean 'names'"):
        read_instances("bundled", taxa_notation="name")  # type: ignore[arg-type]


def test_a_record_given_as_a_value_holds_names_and_is_checked_like_a_line() -> None:
    assert instance_of(homoplasy(2, 3)).answer["taxa"] == ["2", "3"]
    with pytest.raises(DataError, match="record 'x': question: is missing"):
        instance_of({"id": "x", "task": "REL-A1"})


def test_the_bundled_set_needs_no_setting_and_no_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = read_instances()
    assert found.skipped == ()
    assert {instance.task for instance in found} == set(TASKS)


def test_the_released_files_are_read_whole_and_keyed_uniquely(shared: Path) -> None:
    found = read_instances(shared / "data" / "rel")
    assert len(found) == len({instance.key for instance in found}) == 4116
    assert Counter((i.task, i.subset) for i in found if i.task.startswith("REL-A")) == {
        **{(f"REL-A{n}", grid): 125 for n in range(1, 5) for grid in ("3x3", "9x9")},
        **{(f"REL-A{n}", "v1"): 25 for n in range(1, 5)},
    }
    assert Counter(i.task for i in found if not i.task.startswith("REL-A")) == {
        **{"REL-C1": 1000, "REL-C2": 1016, "REL-C3": 1000},
    }


def test_the_regenerated_files_say_what_they_can_about_their_notation(shared: Path) -> None:
    folder = shared / "data" / "regenerated"
    for name in ("REL-B1_1000bp.jsonl", r"REL-B1_300bp.jsonl"):
        for instance in read_instances(folder / name, taxa_notation="names"):
            metadata = instance.metadata
            assert instance.answer["taxa"] == metadata.get("taxa_names", [])
            positions = metadata["upstream_build_benchmark_taxa_index"]
            names = [line[1:] for line in instance.question.split() if line.startswith(">")]
            assert in_names(positions, names, "positions") == instance.answer["taxa"]
    assert len(read_instances(folder / "REL-B1_1000bp.jsonl")) == 40
    with pytest.raises(DataError, match="does not say which is meant"):
        read_instances(folder / "REL-B1_300bp.jsonl")
    proven = read_instances(folder / "REL-B1_300bp_taxa_as_index.jsonl")
    declared = read_instances(
        folder / "REL-B1_300bp_taxa_as_index.jsonl", taxa_notation="positions"
    )
    assert proven == declared
