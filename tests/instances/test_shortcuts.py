"""REL-B1's shortcuts compare all pairs of sequences at once; here each pair is compared by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rel_batch.instances.shortcuts import SHORTCUTS

BY_NAME = {shortcut.name: shortcut for shortcut in SHORTCUTS["REL-B1"]}


def reply(name: str, sequences: list[str]) -> str:
    fasta = "".join(f">t{n}\n{sequence}\n" for n, sequence in enumerate(sequences))
    return BY_NAME[name].reply({"question": f"Is there homoplasy?\n{fasta}"}, Random(0))


def runs(sequences: list[str]) -> Iterator[tuple[int, int, int, int, int]]:
    """Each pair, the length and start of its longest identical run, and how alike the rest is."""
    for i, j in combinations(range(len(sequences)), 2):
        same = [a == b for a, b in zip(sequences[i], sequences[j], strict=False)]
        found = [
            (length, -start)
            for start in range(len(same))
            for length in range(1, len(same) - start + 1)
            if all(same[start : start + length])
        ]
        length, start = max(found, default=(0, 0))
        rest = same[:-start] + same[-start + length :]
        yield i, j, length, -start, 2 * sum(rest) < len(rest)


alignments = st.lists(st.text("ACGT", min_size=1, max_size=24), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(alignments)
def test_the_longest_run_is_that_of_the_first_pair_that_has_it(sequences: list[str]) -> None:
    i, _, length, start, _ = max(runs(sequences), key=lambda pair: pair[2])
    run = sequences[i][start : start + length]
    taxa = [f"t{n}" for n, other in enumerate(sequences) if other[start:].startswith(run)]
    assert reply("longest identical run", sequences) == "Yes: " + ", ".join(taxa)


@settings(max_examples=60, deadline=None)
@given(alignments)
def test_a_run_of_unlike_sequences_has_at_least_nine_columns(sequences: list[str]) -> None:
    unlike = [(i, j, length) for i, j, length, _, is_unlike in runs(sequences) if is_unlike]
    longest = max((length for _, _, length in unlike), default=0)
    found = sorted({n for i, j, length in unlike if length == longest for n in (i, j)})
    expected = "Yes: " + ", ".join(f"t{n}" for n in found) if longest >= 9 else "No"
    assert reply("longest run of unlike sequences", sequences) == expected


@pytest.mark.parametrize(
    ("sequences", "expected", "why"),
    [
        (["A" * 9 + "C" * 9, "A" * 9 + "G" * 9], "Yes: t0, t1", "half is alike, in one run"),
        (["A" * 8 + "C" * 9, "A" * 8 + "G" * 9], "No", "eight columns are no rare run"),
        (["A" * 18, "A" * 18], "No", "alike everywhere"),
    ],
)
def test_unlike_sequences_with_a_run_in_common(
    sequences: list[str], expected: str, why: str
) -> None:
    assert reply("longest run of unlike sequences", sequences) == expected, why
