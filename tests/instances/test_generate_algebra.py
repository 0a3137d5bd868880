"""REL-A: the rule picks exactly one choice, and nothing cheaper than the rule does."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rel_batch.instances.generate import generate
from rel_batch.instances.shortcuts import SHORTCUTS

Row = list[int]


def is_constant(rows: list[Row]) -> bool:
    return all(len(set(row)) == 1 for row in rows)


def is_progression(rows: list[Row]) -> bool:
    return len({b - a for row in rows for a, b in pairwise(row)}) == 1


def is_permutation(rows: list[Row]) -> bool:
    return all(sorted(row) == sorted(rows[0]) and len(set(row)) == len(row) for row in rows)


def is_row_sum(rows: list[Row]) -> bool:
    total = all(row[-1] == sum(row[:-1]) for row in rows)
    return total or all(row[0] == sum(row[1:]) for row in rows)


RULES: dict[str, Callable[[list[Row]], bool]] = {
    "REL-A1": is_constant,
    "REL-A2": is_progression,
    "REL-A3": is_permutation,
    "REL-A4": is_row_sum,
}


def choices_that_fit(task: str, question: str) -> list[int]:
    """Solves a question from its text alone: the choices with which the rule holds."""
    shown, _, printed = question.partition("Answer set:")
    panels = [
        [tuple(map(int, panel.split(", "))) for panel in re.findall(r"\(([\d, ]+)\)", row)]
        for row in shown.partition("\n")[2].split(";")
    ]
    choices = [
        tuple(map(int, panel.split(", "))) for panel in re.findall(r": \(([\d, ]+)\)", printed)
    ]
    fitting: list[int] = []
    for index, choice in enumerate(choices):
        rows = [*panels[:-1], [*panels[-1], choice]]
        columns = ([[panel[i] for panel in row] for row in rows] for i in range(3))
        if all(map(RULES[task], columns)):
            fitting.append(index)
    return fitting


@pytest.mark.parametrize("task", RULES)
@settings(max_examples=25, deadline=None)
@given(size=st.integers(3, 10), seed=st.integers(0, 10**6))
def test_the_rule_holds_for_the_target_alone(task: str, size: int, seed: int) -> None:
    for record in generate(task, size=size, per_level=2, seed=seed):
        assert choices_that_fit(task, record["question"]) == [record["answer"]["target"]]


@pytest.mark.parametrize("task", RULES)
def test_targets_are_spread_over_all_places(task: str) -> None:
    targets = [record["answer"]["target"] for record in generate(task, per_level=400, seed=3)]
    assert all(25 <= targets.count(index) <= 75 for index in range(8))


@pytest.mark.parametrize("task", RULES)
def test_no_shortcut_that_is_not_the_rule_beats_chance_by_more_than_three_points(
    task: str,
) -> None:
    records = list(generate(task, size=3, per_level=2_000, seed=8))
    too_good: dict[str, float] = {}
    for shortcut in SHORTCUTS[task]:
        rng = Random(8)
        right = sum(
            shortcut.reply(record, rng) == str(record["answer"]["target"]) for record in records
        )
        accuracy = 100 * right / len(records)
        if not shortcut.bears_on_rule and accuracy > 12.5 + 3:
            too_good[shortcut.name] = accuracy
    assert too_good == {}
