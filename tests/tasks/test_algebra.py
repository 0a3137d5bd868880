"""REL-A1 to REL-A4: what is read as a choice, and why the rest is not."""

from __future__ import annotations

import pytest

from rel_batch import constraint_for, score_reply
from rel_batch.errors import DataError
from rel_batch.instances import instance_of
from rel_batch.tasks.choices import read_choice

CHOICES = [(100.0 + i, 200.0 + i, 300.0 + i) for i in range(8)]
PRINTED = [f"({100 + i}, {200 + i}, {300 + i})" for i in range(8)]
ECHO = "\n".join(f"Answer {i}: {cell}" for i, cell in enumerate(PRINTED))


def read(answer: str, *, base: int = 0, truncated: bool = False) -> int | str:
    return read_choice(answer.strip(), base, CHOICES, truncated=truncated)


@pytest.mark.parametrize(
    "answer",
    [
        *("5", "5.", "(5)", "[5]", "**5**", "`5`", '"5"', "#5", "5\n", "five", "=> 5"),
        *("Answer 5", "answer 5", "ANSWER 5", "Answer5", "Answer-5", "Answer - 5", "Answer – 5"),
        *("Answer: 5", "Answer (5)", "Answer #5", "Answer five", "answer = 5", "Answer: Option 5"),
        *("Option 5", "option (5)", "Panel 5", "Index: 5", "panel index 5", "Option Five."),
        *("The correct option is (5).", "The correct choice is option 5", "index is 5."),
        *("The missing panel is 5.", "The missing panel index is **5**.", "It is 5.", "Thus, 5."),
        *("Therefore, the missing panel index is 5.", "So the answer is 5", "The answer is five."),
        *("I choose option 5.", "I'd go with 5", "The answer should be 5", "Answer is: Answer 5"),
        *(r"\boxed{5}", r"$\boxed{\text{Answer 5}}$", r"The answer is $\boxed{5}$.", "$$5$$"),
        *(r"\[\boxed{5}\]", "### Final Answer\n\n**5**", "## Answer: 5", "**Final Answer:** 5"),
        *('{"answer": 5}', '{"answer": "5"}', '{"answer": "Answer 5"}', '{"index": 5}'),
        *('```json\n{"answer": 5}\n```', '{"missing_panel_index": 5}', '{"answer": 5.0}'),
        *('{"answer": [5]}', '{"choice": 5, "confidence": 0.9}', "<answer>5</answer>"),
        '{"reasoning": "Answer 2 is off; row 3 has 7", "answer": 5}',
        '{"answer": 5, "reasoning": "option 2 fails in color"}',
        *("Answer 5 (confidence 95%)", "5 (confidence 95%)", "Answer: 5, 95% confident"),
        f"The missing panel is {PRINTED[5]}, i.e. Answer 5.",
        *(f"Answer 5: {PRINTED[5]}", f"5: {PRINTED[5]}", f"Answer 5 {PRINTED[5]}"),
        f"Answer set:\n{ECHO}\n\nAnswer 5",
        "5\n\nExplanation: row 1 has 3 cells; Answer 2 fails.",
        "The pattern:\nRow 1 is ok\n\n5",
        "1. Look at row 1.\n2. Then at row 3.\n\nAnswer: 5",
        "Option 5 completes the matrix.",
        "I think it's 5.",
        "Ans: 5",
        "Answer\n5",
        "Result: 5",
        f"5 - {PRINTED[5]}",
        "It is not Answer 2, it is Answer 5",
        "The sixth option (index 5)",
        "Candidates: 2, 5. I pick 5.",
        "Answer 5\n\nRow 1 and Answer 2 share 3.",
    ],
)
def test_a_stated_choice_is_read_however_it_is_dressed(answer: str) -> None:
    assert read(answer) == 5


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("Answer 2. Wait, I mis-added; the correct choice is Answer 1.", 1),
        ("Answer 2... wait, it should be Answer 3", 3),
        ("Answer 2. No, Answer 3.", 3),
        ("Answer 2\n\nCorrection: 3", 3),
        ("The answer is 2. Actually, the answer is 3.", 3),
        ("Answer 5, or rather Answer 4", 4),
        # what looks like a correction and states nothing
        ("Answer 2. Wait, let me check Answer 3: it fails.", 2),
        ("The answer is 5. Actually Answer 2 differs in color, so fine.", 5),
        # a choice that its own sentence rejects
        ("Answer 2 matches only the first. Answer 6 fails. Answer 5 fits all rules.", 5),
        ("Answer 2 is wrong, Answer 5 is correct.", 5),
        ("Not Answer 5 but Answer 4", 4),
        ("Answer 4, not Answer 5.", 4),
        ("Answer 4 rather than Answer 5", 4),
        ("Answer 5 because Answer 6 does not match the size", 5),
        # alternatives that are then decided
        ("Answer 5 or Answer 4. Final answer: 4", 4),
        ("It could be Answer 5 or Answer 4, but the correct one is Answer 4.", 4),
    ],
)
def test_the_choice_stated_last_counts(answer: str, choice: int) -> None:
    assert read(answer) == choice


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ("", "no_choice"),
        ("I'm sorry, but I am unable to determine the missing panel.", "no_choice"),
        ("None of the listed options completes the matrix.", "no_choice"),
        ("Answer:", "no_choice"),
        ("The correct option is E.", "no_choice"),
        ("The third option", "no_choice"),
        ("The answer is one of the options listed.", "no_choice"),
        ("The answer is not 5", "no_choice"),
        ("Is it Answer 5? I do not know.", "no_choice"),
        ("I am 95% sure.", "no_choice"),
        ("Row 1: 5, row 2: 6", "no_choice"),
        ("The sum of row 3 is 5.", "no_choice"),
        ("row index is 3", "no_choice"),
        ("3 attributes follow the rule.", "no_choice"),
        ("1. Look at row 1\n2. Look at row 2\n3. So constant", "no_choice"),
        (ECHO, "no_choice"),
        (f"Applying it to row 9 gives {PRINTED[5]}", "no_choice"),
        ('{"answer": null}', "no_choice"),
        ("Either Answer 5 or 4.", "undecided"),
        ("It is either Answer 5 or Answer 4; I cannot tell which.", "undecided"),
        ("It is either 5 or Answer 4.", "undecided"),
        ("5 or 4", "undecided"),
        ("5, 4", "undecided"),
        ("Answer 5 / Answer 4", "undecided"),
        ("Answer 5 and Answer 4 both fit", "undecided"),
        ("Answer 5, or maybe Answer 3", "undecided"),
        ("Answer 8", "out_of_range"),
        ("Answer 12", "out_of_range"),
        ("-1", "out_of_range"),
        ("The answer is 2.5", "out_of_range"),
    ],
)
def test_no_single_choice_is_unparsed(answer: str, failure: str) -> None:
    assert read(answer) == failure


@pytest.mark.parametrize(
    "answer",
    [
        PRINTED[5],
        "[105, 205, 305]",
        f"The missing panel is {PRINTED[5]}.",
        rf"\boxed{{{PRINTED[5]}}}",
    ],
)
def test_cell_values_alone_stand_for_the_one_choice_that_prints_them(answer: str) -> None:
    assert read(answer) == 5


def test_cell_values_of_no_choice_or_of_two_are_unparsed() -> None:
    assert read("(1, 2, 3)") == "no_choice"
    assert read_choice("(1, 2)", 0, [(1.0, 2.0), (1.0, 2.0)], truncated=False) == "no_choice"


@pytest.mark.parametrize(
    ("answer", "read_as"),
    [
        ("5", 5),  # no longer label starts with this one
        ("The answer is 5.", 5),
        ("Answer 5\n\nBecause row", 5),
        (r"\boxed{5}", 5),
        ('{"answer": 5}', 5),
        ("The answer is 5", "truncated"),
        ("Answer 5 or", "truncated"),
        ('{"answer": 5', "truncated"),
        ("Answer 2 fits. Answer 3", "truncated"),
        ("The answer is 5. Wait, let me", "truncated"),
        ("Let me think: row 3", "truncated"),
    ],
)
def test_a_cut_answer_counts_only_if_it_was_complete_before_the_cut(
    answer: str, read_as: int | str
) -> None:
    assert read(answer, truncated=True) == read_as


@pytest.mark.parametrize(("answer", "index"), [("1", 0), ("Answer 8", 7), ("0", "out_of_range")])
def test_labels_that_start_at_1_are_read_as_printed(answer: str, index: int | str) -> None:
    assert read(answer, base=1) == index


def question(width: int, base: int = 0, asked: str | None = None, shown: int | None = None) -> str:
    cells = ["(1, 2, 3)"] * (width * width - 1 if shown is None else shown)
    rows = [cells[i : i + width] for i in range(0, len(cells), width)]
    matrix = "; ".join(f"row {n}: {', '.join(row)}" for n, row in enumerate(rows, 1))
    labels = "\n".join(f"Answer {base + i}: {cell}" for i, cell in enumerate(PRINTED))
    asked = asked or f"{base}-{base + 7}"
    prompt = f"Only return the missing panel index ({asked})!"
    return f"{prompt}\n{matrix}, \n\nAnswer set:\n{labels}"


def record(
    task: str = "REL-A3", *, text: str | None = None, target: object = 5
) -> dict[str, object]:
    return {
        "id": "a",
        "task": task,
        "question": question(3) if text is None else text,
        "answer": {"target": target},
        "metadata": {},
    }


@pytest.mark.parametrize("width", [2, 3, 4, 9, 15])
def test_rc_is_two_for_rules_of_neighbours_and_the_width_for_rules_of_rows(width: int) -> None:
    for task, rc in [("REL-A1", 2), ("REL-A2", 2), ("REL-A3", width), ("REL-A4", width)]:
        instance = instance_of(record(task, text=question(width)))
        assert (instance.rc, instance.num_entities) == (rc, width * width - 1)
        assert instance.subset == f"{width}x{width}"


@pytest.mark.parametrize("base", [0, 1])
def test_the_format_is_the_printed_label_alone(base: int) -> None:
    printed = record(text=question(3, base))
    constraint = constraint_for(printed)
    admitted = [
        text for text in ("", "0", "1", "7", "8", "9", "12", "5\n") if constraint.matches(text)
    ]
    assert admitted == (["0", "1", "7"] if base == 0 else ["1", "7", "8"])
    assert score_reply(printed, str(base + 5)).correct
    assert score_reply(printed, str(base + 5)).prediction == 5
    assert score_reply(printed, str(base + 4)).failure == "wrong_choice"


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (record(target=8), "answer.target: expected an integer 0-7, found 8"),
        (record(target="5"), "answer.target: expected an integer 0-7, found '5'"),
        (record(target=True), "answer.target: expected an integer 0-7, found True"),
        (record(text="Which?"), 'question: there is no "Answer set:"'),
        (record(text=question(3, base=2)), r"question: expected the labels .*found \[2, 3"),
        (
            record(text=question(3, 0, "1-8")),
            "question: asks for an index 1-8 but labels .* from 0",
        ),
        (record(text=question(3, shown=7)), "question: expected the panels of a square .*found 7"),
    ],
)
def test_a_question_that_is_not_in_the_format_is_refused(
    bad: dict[str, object], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        instance_of(bad)
