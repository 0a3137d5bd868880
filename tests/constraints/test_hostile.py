"""Lists of names that are long or strange cost no more than their text, and mean what they say."""

from __future__ import annotations

import pytest
from cases import CASES, Case

from rel_batch.constraints import Constraint, OneOf, Seq, Subset, Text, machine, separated, texts
from rel_batch.constraints.dialects import is_grammar
from rel_batch.constraints.machine import Machine
from rel_batch.constraints.subset import MAX_LINEAR_NAMES

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


def test_a_long_ascending_list_is_left_to_our_own_matcher() -> None:
    """Backends take minutes to compile it; our matcher reads it as it stands."""
    few, many = (
        Constraint("ascending", Subset(NAMES[:n], ", ", "ascending"))
        for n in (MAX_LINEAR_NAMES, MAX_LINEAR_NAMES + 1)
    )
    assert is_grammar(few)
    assert not is_grammar(many)
