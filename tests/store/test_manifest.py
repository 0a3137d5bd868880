"""What makes two runs the same, and how a person is told that they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from example_runs import new_run
from hypothesis import given, settings
from hypothesis import strategies as st

from rel_batch.errors import StoreError
from rel_batch.store import RunFolder
from rel_batch.store.manifest import check_identity


def difference(stored: dict[str, Any], now: dict[str, Any]) -> str:
    with pytest.raises(StoreError) as raised:
        check_identity(Path("outputs/run/manifest.json"), {"identity": stored}, {"identity": now})
    return str(raised.value)


def test_the_differing_settings_are_shown_in_two_columns() -> None:
    stored = {
        "model": {"path": "org/model", "commit": "0123456789abcdef" * 3 + "00"},
        "arms": [{"name": "format", "max_tokens": 64}],
        "seed": 1,
        "thinking": True,
    }
    now = {
        "model": {"path": "org/model", "commit": "0123456789abcdef" * 3 + "ff"},
        "arms": [{"name": "format", "max_tokens": 128}, {"name": "none"}],
        "seed": 1,
        "thinking": 1,
        "template": "chat",
    }
    assert difference(stored, now) == (
        "outputs/run/manifest.json is of another run. What differs:\n"
        "  setting             stored            now\n"
        "  arms[0].max_tokens  64                128\n"
        '  arms[1]             (absent)          {"name": "none"}\n'
        '  model.commit        …456789abcdef00"  …456789abcdefff"\n'
        '  template            (absent)          "chat"\n'
        "  thinking            true              1\n"
        "hint: Give the new run another folder, or use the settings that are stored. "
        "Nothing was changed."
    )


def test_a_tuple_is_the_list_that_it_is_stored_as() -> None:
    check_identity(Path("m"), {"identity": {"tasks": ["a"]}}, {"identity": {"tasks": ("a",)}})


def test_what_is_not_identity_may_differ(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    other = {**run.manifest, "created": "another day"}
    again = RunFolder.create_or_resume(run.path, other, [], [])
    assert again.manifest["created"] == run.manifest["created"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(deadline=None, max_examples=40)
@given(stored=st.dictionaries(st.text(max_size=3), JSON), now=st.dictionaries(st.text(), JSON))
def test_two_runs_are_the_same_exactly_when_their_json_is(
    stored: dict[str, Any], now: dict[str, Any]
) -> None:
    check_identity(Path("m"), {"identity": stored}, {"identity": stored})
    same = json.dumps(stored, sort_keys=True) == json.dumps(now, sort_keys=True)
    try:
        check_identity(Path("m"), {"identity": stored}, {"identity": now})
    except StoreError:
        assert not same
    else:
        assert same


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "has store version None; this rel-batch reads 1"),
        ('{"store_version": 2}', "has store version 2; this rel-batch reads 1"),
    ],
    ids=["half", "deep", "no object", "newer"],
)
def test_a_manifest_that_cannot_be_used_is_an_error(
    tmp_path: Path, content: str, complaint: str
) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=complaint):
        RunFolder.open(tmp_path)
