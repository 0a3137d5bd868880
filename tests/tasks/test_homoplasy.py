"""REL-B1: what is read as a label and as taxa, and why the rest is not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rel_batch import constraint_for, score_reply
from rel_batch.constraints import Kind
from rel_batch.errors import DataError
from rel_batch.instances import instance_of
from rel_batch.records import Instance
from rel_batch.tasks.taxa import read_taxa

NUMBERS = frozenset(str(number) for number in range(2, 51))
NAMES = frozenset(
    [
        *("Homo sapiens", "Pan", "Pan troglodytes", "it's", "a,b", "[x]", '"q"', "A-1", "x.y"),
        *("T_1", "(p)", "18", "2. 3", "$5", "no", ".*", "\\d", "a|b"),
    ]
)

Read = tuple[str | None, set[str], set[str]]


def read(answer: str, names: frozenset[str] = NUMBERS) -> Read:
    reading = read_taxa(answer.strip(), names)
    return reading.label, set(reading.taxa), set(reading.unknown)


@pytest.mark.parametrize(
    "answer",
    [
        *("Yes: 18, 28", "yes: 18 and 28", "Yes (18, 28)", "Yes, 18, 28.", "Yes 18 28"),
        *("YES: 18,28", "Yes: 18 , 28", "Yes - 18 & 28", "Yes: [18, 28]", "Yes: {18, 28}"),
        *("Yes\n18\n28", "Yes\n\n- 18\n- 28", "Yes\n1. 18\n2. 28", "Yes: 28, 18, 18, 28"),
        *('Yes: "18", "28"', "Yes: '18', '28'", "Yes: >18, >28", "Yes: #18, #28"),
        *("Yes: taxon18, taxon28", "Yes: Taxon 18; Taxon 28", "Yes: sequences 18 and 28"),
        *("Yes, taxa: 18, 28", "Yes. The taxa involved are taxon_18, taxon_28."),
        *("Yes.\nTaxa involved:\n* Taxon 18\n* Taxon 28", "**Yes** - taxa: **18**, **28**"),
        *(r"$\boxed{\text{Yes}: 18, 28}$", "<answer>Yes: 18, 28</answer>"),
        *('{"answer": "Yes", "taxa": [18, 28]}', '{"homoplasy": true, "taxa": ["18", "28"]}'),
        *('{"answer": "Yes: 18, 28"}', '{"answer": "Yes", "taxa": "18, 28"}'),
        *('```json\n{"answer": "Yes", "taxa": [18, 28]}\n```', '{"answer": "Yes", "taxa": [18, 28'),
        '{"label": "yes", "taxa": ["taxon_18", "28"], "confidence": 0.5}',
        # numbers that are no taxa
        "Yes. Taxa involved: 18, 28 (shared block around alignment positions 20-40).",
        "Yes, there is structured homoplasy between 18 and 28.",
        "Yes, there is structured homoplasy involving taxa 18 and 28 at positions 12-40.",
        "Yes. 5 blocks are shared between 18 and 28.",
        "Yes. The block at positions 12 to 30 is shared by taxa 18 and 28.",
        "Yes, 2 taxa: 18, 28",
        "Yes. Among the 49 sequences, 18 and 28 share motifs.",
        "Yes. Taxa 18 and 28 share 5 motifs.",
        "Yes: 18, 28 (45% confidence)",
        "Yes, 18 and 28 (2 of 49 sequences)",
        "Yes with high confidence (45%): 18, 28",
        "Yes. Motif length: 25. Taxa: 18, 28",
        "Yes. Number of taxa: 2. Taxa: 18, 28",
        "Yes — 18, 28 share a 25-bp block",
        '{"answer": "Yes", "positions": [12, 30], "taxa": [18, 28]}',
        '{"answer": "Yes", "involved": [18, 28], "positions": [12, 30]}',
        "Yes: 18, 28 - share the motif ACGT in 5 blocks",
        # other taxa
        "Yes. Taxa involved: 18, 28. The remaining taxa do not share these motifs.",
        "Yes: 18, 28; the other taxa 3 and 5 do not.",
        "Yes: 18, 28, unlike taxa 3, 5",
        "Yes: 18, 28. Actually, no other taxa such as 3 share it.",
        # reasoning first, corrections
        "Let me compare.\nThere is no pair at first, but 3 and 5 do.\n\nYes: 18, 28",
        "Analysis: no other taxa.\n\n**Answer:** Yes, 18, 28",
        "No. Wait, actually yes: 18, 28",
        "Yes: 18, 31. Wait, the taxa are 18, 28.",
        "Return your answer as: Yes/No and list.\nYes: 18, 28",
        "Is structured homoplasy present? Yes. Taxa: 18, 28",
        "The answer is yes, with taxa 18 and 28 involved",
    ],
)
def test_yes_and_its_taxa_are_read_however_they_are_dressed(answer: str) -> None:
    assert read(answer) == ("yes", {"18", "28"}, set())


def test_groups_of_taxa_are_one_set() -> None:
    for answer in (
        "Yes\nGroup 1: 18, 28\nGroup 2: 31, 44",
        "Yes: (18, 28) and (31, 44)",
        "Yes: group A (18, 28), group B (31, 44)",
        '{"answer": "yes", "taxa": [[18, 28], [31, 44]]}',
    ):
        assert read(answer) == ("yes", {"18", "28", "31", "44"}, set())


@pytest.mark.parametrize(
    ("answer", "taxa", "unknown"),
    [
        ("Yes", set(), set()),
        ("Yes, homoplasy is likely.", set(), set()),
        ("Yes: 18, 28, 99", {"18", "28"}, {"99"}),
        ("Yes: 18, Homo_sapiens", {"18"}, {"Homo_sapiens"}),
        ("Yes: 018", set(), {"018"}),
        ("Yes, taxa 5-9", set(), {"5-9"}),
    ],
)
def test_listed_names_that_the_alignment_lacks_are_kept_apart(
    answer: str, taxa: set[str], unknown: set[str]
) -> None:
    assert read(answer) == ("yes", taxa, unknown)


@pytest.mark.parametrize(
    "answer",
    [
        *("No", "no.", "**No**", "NO!", "None", "None.", "Answer: No", "The answer is no."),
        *(
            r"\boxed{No}",
            r"$\boxed{\text{No}}$",
            '{"answer": "No"}',
            '{"answer": "no", "taxa": []}',
        ),
        *('{"homoplasy": false, "taxa": []}', "No homoplasy detected.", "Yes: 18. Wait, no."),
        "No. Sequence similarity across the 49 sequences follows the tree.",
        "No evidence of homoplasy in the 49 taxa.",
        "No - the sequences 18 and 28 are sisters",
        "No, 18 and 28 are sister taxa.",
    ],
)
def test_no_is_read_without_the_taxa_that_it_talks_about(answer: str) -> None:
    assert read(answer) == ("no", set(), set())


def test_a_list_given_to_a_no_is_a_set_that_is_not_empty() -> None:
    assert read("No: 18, 28") == ("no", {"18", "28"}, set())


@pytest.mark.parametrize(
    "answer",
    [
        *("", "I don't know.", "I cannot determine this.", "No idea.", "Not sure", "Unknown"),
        *("Nothing", "Nope", "Yesterday", "Maybe", "Yes/No", "Yes or No", "There is no evidence."),
        "Taxa: 18, 28",
    ],
)
def test_without_a_yes_or_no_there_is_no_answer(answer: str) -> None:
    assert read(answer)[0] is None


@pytest.mark.parametrize(
    ("answer", "taxa"),
    [
        ("Yes: Homo sapiens, Pan troglodytes", {"Homo sapiens", "Pan troglodytes"}),
        ("Yes: Pan", {"Pan"}),
        ("Yes: " + ", ".join(sorted(NAMES)), set(NAMES)),
        ("Yes. The taxa involved are **Homo sapiens** and **Pan**.", {"Homo sapiens", "Pan"}),
        ('Yes: "Pan", "q"', {"Pan", '"q"'}),
        ('{"answer": "yes", "taxa": ["Homo sapiens", "\\"q\\""]}', {"Homo sapiens", '"q"'}),
        ("Yes - A-1 and T_1.", {"A-1", "T_1"}),
    ],
)
def test_names_of_any_shape_are_found(answer: str, taxa: set[str]) -> None:
    assert read(answer, NAMES) == ("yes", taxa, set())


def question(names: list[str]) -> str:
    fasta = "\n".join(f">{name}\nACGT" for name in names)
    return f"Alignment (FASTA; positions indexed from 1):\n        {fasta}\n\nAnswer Yes/No."


def instance(names: list[str], taxa: list[str]) -> Instance:
    return instance_of(
        {
            "id": "b",
            "task": "REL-B1",
            "question": question(names),
            "answer": {"label": "yes" if taxa else "no", "taxa": taxa},
            "metadata": {},
        }
    )


YES = instance(sorted(NUMBERS), ["18", "28"])
NO = instance(sorted(NUMBERS), [])


@pytest.mark.parametrize(
    ("gold", "reply", "verdict", "failure", "overlap"),
    [
        (YES, "Yes: 28, 18", "correct", None, (1.0, 1.0, 1.0)),
        (YES, "Yes: 18", "incorrect", "missing_taxa", (1.0, 0.5, 2 / 3)),
        (YES, "Yes: 18, 28, 3, 4", "incorrect", "extra_taxa", (0.5, 1.0, 2 / 3)),
        (YES, "Yes: 18, 3", "incorrect", "wrong_taxa", (0.5, 0.5, 0.5)),
        (YES, "Yes: 18, 28, 99, 98", "incorrect", "unknown_taxa", (0.5, 1.0, 2 / 3)),
        (YES, "Yes", "incorrect", "missing_taxa", (0.0, 0.0, 0.0)),
        (YES, "No", "incorrect", "wrong_label", (0.0, 0.0, 0.0)),
        (YES, "Taxa: 18, 28", "unparsed", "no_label", (0.0, 0.0, 0.0)),
        (NO, "No", "correct", None, (None, None, None)),
        (NO, "No: 18", "incorrect", "extra_taxa", (None, None, None)),
        (NO, "Yes: 18", "incorrect", "wrong_label", (None, None, None)),
        (NO, "I don't know", "unparsed", "no_label", (None, None, None)),
    ],
)
def test_the_label_and_exactly_the_set_of_taxa_are_wanted(
    gold: Instance, reply: str, verdict: str, failure: str | None, overlap: tuple[float | None, ...]
) -> None:
    score = score_reply(gold, reply)
    assert (score.verdict, score.failure) == (verdict, failure)
    assert (score.precision, score.recall, score.f1) == pytest.approx(overlap)


@pytest.mark.parametrize(
    ("gold", "reply", "verdict", "failure", "recall"),
    [
        (YES, "Yes: 18, 28", "incorrect", "truncated", 0.5),  # "28, 31" may have been meant
        (YES, "Yes: 18, 28,", "incorrect", "truncated", 1.0),
        (YES, "Yes. The taxa involved are 18,", "incorrect", "truncated", 0.5),
        (YES, "Yes: 18, 28.", "correct", None, 1.0),
        (YES, "Yes: 18, 28\n\nThese share", "correct", None, 1.0),
        (YES, "Yes", "unparsed", "truncated", 0.0),
        (YES, "Let me compare all", "unparsed", "truncated", 0.0),
        (NO, "No", "correct", None, None),  # the format has no longer reply that starts like this
        (NO, "No. The", "correct", None, None),
        (NO, "Answer: No", "unparsed", "truncated", None),
        (NO, "No. Wait,", "unparsed", "truncated", None),
        (NO, "Yes: 18, 2", "incorrect", "wrong_label", None),
    ],
)
def test_a_cut_answer_counts_only_if_it_was_complete_before_the_cut(
    gold: Instance, reply: str, verdict: str, failure: str | None, recall: float | None
) -> None:
    score = score_reply(gold, reply, "length")
    assert (score.verdict, score.failure, score.recall) == (verdict, failure, recall)


def test_the_format_is_no_or_yes_with_names_of_this_alignment() -> None:
    constraint = constraint_for(instance(["ab", "a b", "c"], ["c"]))
    for admitted in ("No", "Yes: c", "Yes: a b, ab", "Yes: c, c, c"):
        assert constraint.matches(admitted)
    for refused in ("", "Yes", "Yes: ", "Yes: d", "Yes: c,ab", "Yes: c, c, c, c", "no", "No."):
        assert not constraint.matches(refused)


def test_rc_is_the_number_of_homoplastic_taxa() -> None:
    assert (YES.rc, YES.num_entities) == (2, 49)
    assert (NO.rc, NO.num_entities) == (0, 49)


# Any text that can stand in a FASTA header and be sent through JSON.
names_of_any_shape = st.lists(
    st.text(
        st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=8
    )
    .map(str.strip)
    .filter(bool)
    .filter(lambda name: "think>" not in name),
    min_size=2,
    max_size=8,
    unique=True,
).filter(lambda names: not any(b.startswith(f"{a}, ") for a in names for b in names))


@settings(deadline=None)
@given(names_of_any_shape, st.randoms(use_true_random=False))
def test_any_names_can_be_listed_and_scored(names: list[str], rng: object) -> None:
    taxa = rng.sample(names, rng.randint(1, len(names)))  # type: ignore[attr-defined]
    gold = instance(names, taxa)
    reply = "Yes: " + ", ".join(taxa)
    assert constraint_for(gold).matches(reply)
    assert score_reply(gold, reply).correct
    assert score_reply(gold, f"Yes: {', '.join(reversed(taxa))}").correct


@pytest.mark.parametrize(
    ("names", "answer", "complaint"),
    [
        (["a"], {"label": "no", "taxa": []}, "question: expected a FASTA alignment, found 1"),
        (["a", "a"], {"label": "no", "taxa": []}, "question: .*empty or repeated name: 'a'"),
        (["a", ""], {"label": "no", "taxa": []}, "question: .*empty or repeated name: ''"),
        (
            ["a", "a, b"],
            {"label": "no", "taxa": []},
            "question: the name 'a, b' starts with the name 'a'",
        ),
        (["a", "<think>"], {"label": "no", "taxa": []}, "question: a name looks like a thought"),
        (["a", "b"], {"label": "maybe", "taxa": []}, "answer.label: expected .* found 'maybe'"),
        (["a", "b"], {"label": "no"}, "answer.taxa: expected an array"),
        (["a", "b"], {"label": "yes", "taxa": []}, "answer.taxa: the label is 'yes' but"),
        (["a", "b"], {"label": "no", "taxa": ["a"]}, "answer.taxa: the label is 'no' but"),
        (
            ["a", "b"],
            {"label": "yes", "taxa": ["c"]},
            "answer.taxa: 'c' is no name of the alignment",
        ),
        (["a", "b"], {"label": "yes", "taxa": ["a", "a"]}, "answer.taxa: a taxon is repeated"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(
    names: list[str], answer: dict[str, object], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        instance_of({"id": "b", "task": "REL-B1", "question": question(names), "answer": answer})


@pytest.mark.parametrize(
    ("kind", "are_equal"),
    [
        *((kind, True) for kind in ("format", "json", "regex", "set", "json_set")),
        *((kind, False) for kind in ("ascending", "json_ascending")),
    ],
)
def test_alignments_of_the_same_taxa_share_a_constraint_unless_it_has_their_order(
    kind: Kind, are_equal: bool
) -> None:
    def alignment(*names: str) -> Instance:
        return instance_of(
            {
                "id": "x",
                "domain": "biology",
                "task": "REL-B1",
                "question": "".join(f">{name}\nACGT\n" for name in names) + "\nTree:",
                "answer": {"label": "no", "taxa": []},
            }
        )

    one, other = alignment("9", "10", "2"), alignment("2", "10", "9")
    digests = {constraint_for(i, kind=kind).digest for i in (one, other)}
    assert (len(digests) == 1) == are_equal
