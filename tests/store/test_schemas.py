"""Rows go into Arrow and come back the same."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping

import pytest
from example_runs import completion, instance
from hypothesis import given, settings
from hypothesis import strategies as st

from rel_batch.records import STATUSES, Completion, Instance, PlannedRequest
from rel_batch.store.schemas import COMPLETIONS, INSTANCES, REQUESTS, SCORES, FileKind, ScoreRow

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Every Unicode character; a lone surrogate is not one.
TEXT = st.text(max_size=40)
FLOATS = st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
BY_TYPE: dict[typing.Any, st.SearchStrategy[typing.Any]] = {
    str: TEXT,
    str | None: st.none() | TEXT,
    int: INT64,
    int | None: st.none() | INT64,
    float: FLOATS,
    float | None: st.none() | FLOATS,
    bool: st.booleans(),
    bool | None: st.none() | st.booleans(),
    tuple[int, ...]: st.lists(INT32, max_size=5).map(tuple),
    tuple[int, ...] | None: st.none() | st.lists(INT32, max_size=5).map(tuple),
    tuple[float, ...] | None: st.none() | st.lists(FLOATS, max_size=5).map(tuple),
    Mapping[str, float] | None: st.none() | st.dictionaries(TEXT, FLOATS, max_size=3),
}


def rows_of(row: type) -> st.SearchStrategy[typing.Any]:
    hints = typing.get_type_hints(row)
    return st.builds(
        row,
        **{
            field.name: BY_TYPE.get(
                hints[field.name],
                st.dictionaries(TEXT, JSON, max_size=3)
                if field.name in ("answer", "metadata")
                else st.sampled_from(STATUSES),
            )
            for field in dataclasses.fields(row)
        },
    )


KINDS: list[tuple[FileKind[typing.Any], type]] = [
    (INSTANCES, Instance),
    (REQUESTS, PlannedRequest),
    (COMPLETIONS, Completion),
    (SCORES, ScoreRow),
]
BY_LABEL = [kind.label for kind, _ in KINDS]


@pytest.mark.parametrize(("kind", "row"), KINDS, ids=BY_LABEL)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_rows_come_back_as_they_were(
    kind: FileKind[typing.Any], row: type, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(rows_of(row), min_size=1, max_size=5))
    assert kind.rows(kind.batch(rows)) == rows


@settings(deadline=None, max_examples=40)
@given(rows=st.lists(rows_of(Completion), min_size=2, max_size=5), start=st.integers(0, 4))
def test_a_slice_of_a_batch_gives_the_slice_of_the_rows(rows: list[Completion], start: int) -> None:
    assert COMPLETIONS.rows(COMPLETIONS.batch(rows).slice(start)) == rows[start:]


@pytest.mark.parametrize(("kind", "row"), KINDS, ids=BY_LABEL)
def test_the_columns_are_the_fields_of_the_row_in_their_order(
    kind: FileKind[typing.Any], row: type
) -> None:
    assert kind.column_names == tuple(field.name for field in dataclasses.fields(row))
    assert set(kind.dictionary) <= set(kind.column_names)


@pytest.mark.parametrize(("kind", "row"), KINDS, ids=BY_LABEL)
def test_a_column_is_nullable_exactly_where_the_field_may_be_none(
    kind: FileKind[typing.Any], row: type
) -> None:
    hints = typing.get_type_hints(row)
    optional = {name for name, hint in hints.items() if type(None) in typing.get_args(hint)}
    assert {name for name, _, nullable in kind.columns if nullable} == optional


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        COMPLETIONS.batch([completion(0, reply="\ud800")])


def test_gold_is_stored_as_json_text() -> None:
    batch = INSTANCES.batch([instance(0)])
    assert batch.column("answer").to_pylist() == ['{"target": 2}']
