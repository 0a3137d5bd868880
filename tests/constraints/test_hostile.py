"""Lists of names that are long or strange cost no more than their text, and mean what they say."""

from __future__ import annotations

import pytest
from cases import CASES, Case

from rel_batch.constraints import OneOf, Seq, Subset, Text, machine, separated, texts
from rel_batch.constraints.machine import Machine

NAMES = tuple(f"taxon_{i}" for i in range(10_000))
LISTS = {
    "format": separated(texts(NAMES), ", ", 1, len(NAMES)),
    "set": Subset(NAMES, ", "),
    "ascending": Subset(NAMES, ", ", "ascending"),
}


@pytest.mark.parametrize("kind", LISTS)
def test_ten_thousand_taxa_are_read_in_few_states(kind: str) -> None:
    reader = Machine(OneOf((Text("No"), Seq((Text("Yes: "), LISTS[kind])))), {})
    reply = "Yes: " + ", ".join(NAMES[:200])
    assert reader.matches(reply)
    assert reader.admits_prefix(reply + ", taxon_99")
    assert not reader.matches(reply + ", taxon_10000")
    assert len(reader._cells) < 3 * len(reply)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_choice_read_as_one_leaf_means_the_same(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_MANY_TEXTS", 1)
    constraint = case.constraint
    assert constraint.expression is not None
    reader = Machine(constraint.expression, dict(constraint.rules))
    for text in (*case.whole, *case.prefix, *case.dead):
        assert reader.matches(text) == (text in case.whole), text
        assert reader.admits_prefix(text) == (text not in case.dead), text
