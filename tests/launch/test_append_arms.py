"""Arms may be added to a run; all else that differs is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from workers import Watched, config_of

from rel_batch.errors import StoreError
from rel_batch.launch.local import run_locally
from rel_batch.launch.prepare import prepare
from rel_batch.store import RunFolder
from rel_batch.store.extend import append_arms

FREE = {"name": "free", "constraint": "none"}
TWICE = {"name": "twice", "constraint": "none", "temperature": 1.0, "samples": 2}
MORE = {"name": "more", "constraint": "none", "max_tokens": 9}


def run(folder: Path, *arms: dict[str, Any], append: bool = True, **changes: Any) -> RunFolder:
    config = config_of(folder, arms=list(arms), **changes)
    outcome = run_locally(config, Watched(), append_arms=append)
    assert outcome.num_missing == 0
    return outcome.run


def test_new_arms_are_run_and_the_old_rows_are_left_alone(tmp_path: Path) -> None:
    first = run(tmp_path, FREE)
    before = {row.request_key: row for row in first.iter_completions()}
    requests = (first.path / "requests.parquet").read_bytes()
    second = run(tmp_path, TWICE, FREE)
    third = run(tmp_path, TWICE, FREE, MORE)
    assert (first.path / "requests.parquet").read_bytes() == requests
    after = {row.request_key: row for row in third.iter_completions()}
    assert after.items() >= before.items()
    assert set(after) == {request.key for request in third.iter_requests()}
    assert len(after) == 4 * len(before) == third.manifest["num_requests"]
    assert second.manifest["num_requests"] == 3 * len(before)
    chunks = [request.chunk for request in third.iter_requests()]
    assert chunks == sorted(chunks)
    # As if all had been asked at once.
    at_once = run(tmp_path / "other", TWICE, FREE, MORE)
    assert {r.key for r in at_once.iter_requests()} == set(after)
    # And now this is what the run is.
    assert run(tmp_path, TWICE, FREE, MORE, append=False).path == third.path


@pytest.mark.parametrize(
    ("arms", "changes", "told"),
    [
        ([{**FREE, "max_tokens": 5}, MORE], {}, "arms.free.max_tokens"),
        ([MORE], {}, "arms.free"),
        ([FREE, MORE], {"seed": 5}, "seed"),
        ([FREE, MORE], {"instances": {"limit": 1}}, "instances"),
    ],
)
def test_whatever_else_differs_is_refused_with_the_difference(
    tmp_path: Path, arms: list[Any], changes: dict[str, Any], told: str
) -> None:
    first = run(tmp_path, FREE)
    before = {f.name: f.read_bytes() for f in first.path.iterdir() if f.is_file()}
    with pytest.raises(StoreError, match=told):
        run(tmp_path, *arms, **changes)
    assert {f.name: f.read_bytes() for f in first.path.iterdir() if f.is_file()} == before


def test_without_the_flag_new_arms_are_refused(tmp_path: Path) -> None:
    run(tmp_path, FREE)
    with pytest.raises(StoreError, match="arms"):
        run(tmp_path, FREE, MORE, append=False)


def test_adding_that_was_interrupted_is_finished_by_the_same_command_alone(
    tmp_path: Path,
) -> None:
    first = run(tmp_path, FREE)
    prepared = prepare(config_of(tmp_path, arms=[FREE, MORE]))

    def dies(names: list[str]) -> Any:
        assert names == ["more"]

        def requests() -> Any:
            yield from prepared.plan.requests[:3]
            raise KeyboardInterrupt

        return requests(), 3, 1

    with pytest.raises(KeyboardInterrupt):
        append_arms(first, prepared.manifest({}), dies)
    assert run(tmp_path, FREE, append=False).manifest == first.manifest
    with pytest.raises(StoreError, match="other arms are being added"):
        run(tmp_path, FREE, TWICE)
    finished = run(tmp_path, FREE, MORE)
    assert len(list(finished.iter_completions())) == 2 * first.manifest["num_requests"]
    assert not list(finished.path.glob(".manifest*"))
