"""A subset of names: each at most once, in any order or ascending, exact for any names."""

from __future__ import annotations

import itertools

import pytest
import readers
from cases import HOSTILE_NAMES
from hypothesis import given, settings
from hypothesis import strategies as st

from rel_batch.constraints import Constraint, OneOf, Seq, Subset, Text
from rel_batch.constraints.subset import Order

names = st.lists(st.text("ab,", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
separators = st.sampled_from([",", ", ", "a", ",b"])
thorough = settings(max_examples=300, deadline=None)


def all_texts(leaf: Subset) -> set[str]:
    """Every text of a subset, written down the slow way."""
    found = {""} if leaf.least == 0 else set[str]()
    most = len(leaf.names) if leaf.most is None else min(leaf.most, len(leaf.names))
    for count in range(1, most + 1):
        choose = itertools.permutations if leaf.order == "any" else itertools.combinations
        found |= {leaf.separator.join(chosen) for chosen in choose(leaf.names, count)}
    return found


@thorough
@given(
    names,
    separators,
    st.sampled_from(["any", "ascending"]),
    st.sampled_from([0, 1]),
    st.sampled_from([None, 1, 2]),
    st.text("ab, ", max_size=9),
)
def test_it_admits_exactly_the_lists_without_repeats(
    names: list[str], separator: str, order: Order, least: int, most: int | None, other: str
) -> None:
    leaf = Subset(tuple(names), separator, order, 1 if least else 0, most)
    constraint = Constraint("set", Seq((leaf, Text("!"))))
    whole = all_texts(leaf)
    prefixes = {text[:n] for text in whole for n in range(len(text) + 1)}
    for text in whole | prefixes | {other}:
        assert constraint.matches(text + "!") == (text in whole), text
        assert constraint.admits_prefix(text) == (text in prefixes), text


@thorough
@given(names, separators, st.sampled_from(["any", "ascending"]), st.data())
def test_falling_distances_lead_to_an_end(
    names: list[str], separator: str, order: Order, data: st.DataObject
) -> None:
    leaf = Subset(tuple(names), separator, order)
    state = leaf.first()
    for _ in range(data.draw(st.integers(0, 6))):
        chars = sorted(c for c in leaf.next_chars(state) if leaf.step(state, c) is not None)
        if not chars:
            break
        state = leaf.step(state, data.draw(st.sampled_from(chars)))
    while (distance := leaf.distance(state)) > 0:
        onward = [leaf.step(state, char) for char in leaf.next_chars(state)]
        state = min((s for s in onward if s is not None), key=leaf.distance)
        assert leaf.distance(state) < distance
    assert leaf.is_final(state)


@settings(max_examples=60, deadline=None)
@given(names, separators, st.sampled_from([0, 1]), st.text("ab, ", max_size=9))
def test_ascending_is_the_same_language_in_every_backend(
    names: list[str], separator: str, least: int, other: str
) -> None:
    leaf = Subset(tuple(names), separator, "ascending", 1 if least else 0)
    constraint = Constraint("ascending", OneOf((Text("No"), Seq((Text("Yes: "), leaf)))))
    for text in {f"Yes: {t}" for t in all_texts(leaf)} | {f"Yes: {other}", "No"}:
        expected = readers.machine(constraint, text)
        for backend, read in readers.GRAMMAR_READERS.items():
            assert read(constraint, text) == expected, (backend, text)


def test_any_order_is_no_grammar() -> None:
    constraint = Constraint("set", Subset(("a", "b"), ","))
    for read in readers.GRAMMAR_READERS.values():
        with pytest.raises(ValueError, match="is no grammar"):
            read(constraint, "a")


def test_hostile_names_are_just_names() -> None:
    constraint = Constraint("set", Subset(HOSTILE_NAMES, ", "))
    assert constraint.matches(", ".join(HOSTILE_NAMES))
    assert constraint.matches(", ".join(reversed(HOSTILE_NAMES)))
    assert not constraint.matches(", ".join((*HOSTILE_NAMES, "a b")))


def test_ten_thousand_taxa_take_no_more_than_their_text() -> None:
    many = tuple(f"taxon_{i}" for i in range(10_000))
    constraint = Constraint("set", Subset(many, ", "))
    text = ", ".join(many[::7])
    assert constraint.matches(text)
    assert not constraint.matches(f"{text}, taxon_7")


def test_names_built_of_each_other_stay_bounded_and_sound() -> None:
    built = tuple(",".join("x" * n) for n in range(1, 60))
    constraint = Constraint("set", Subset(built, ","))
    assert constraint.matches(built[-1])
    assert not constraint.matches(",".join("x" * 20_000))


@pytest.mark.parametrize(
    "arguments",
    [((), ","), (("a", "a"), ","), (("",), ","), (("a",), ""), (("a",), ",", "any", 1, 0)],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="must"):
        Subset(*arguments)  # type: ignore[arg-type]
