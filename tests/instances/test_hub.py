"""The released set from the Hub: at one commit, counted, resumed, offline, and refused plainly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from published_hub import COMMIT, released_files, write_cache

from rel_batch.errors import ConfigError, DataError
from rel_batch.instances import read_instances
from rel_batch.instances.generate import generate, render_record
from rel_batch.instances.hub import FILES, fetch_release

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache that is used offline by this process."""
    from huggingface_hub import constants

    home = tmp_path / "hf"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return home


def test_a_cached_release_is_used_offline_with_its_commit_hashes_and_counts(home: Path) -> None:
    snapshot = write_cache(home, released_files())
    for revision in (None, "main", COMMIT):
        release = fetch_release(revision)
        assert (release.commit, release.folder) == (COMMIT, snapshot)
        assert release.num_records == 12_968
        assert set(release.files) == set(FILES)
    assert release.record()["revision"] == COMMIT
    assert len({file.sha256 for file in release.files.values()}) == 24


def test_the_total_of_the_paper_is_accepted_too(home: Path) -> None:
    files = released_files()
    files["chemistry/REL-C2.jsonl"] = b"{}\n" * 1_000
    write_cache(home, files)
    assert fetch_release().num_records == 12_952


def without(name: str) -> dict[str, bytes]:
    return {other: content for other, content in released_files().items() if other != name}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (without("chemistry/REL-C4.jsonl"), "1 of 24 files are missing.*REL-C4"),
        (
            {**released_files(), "algebra/REL-A1_3x3.jsonl": b"{}\n" * 124 + b"\n \n"},
            "REL-A1_3x3.jsonl holds 124 records, not 125",
        ),
        (
            {**released_files(), "biology/REL-B1_007.jsonl": b""},
            "REL-B1 hold 7,290 records, not 7,952",
        ),
    ],
)
def test_a_release_that_is_not_whole_is_refused(
    home: Path, files: Mapping[str, bytes], message: str
) -> None:
    write_cache(home, files)
    with pytest.raises(DataError, match=message):
        fetch_release()


def test_what_is_not_cached_says_what_to_do_without_a_network(home: Path) -> None:
    with pytest.raises(DataError, match="cannot get ada-f/rel at 'main'") as caught:
        fetch_release()
    assert caught.value.hint is not None
    for way in ("HF_HOME", "HF_HUB_OFFLINE=1", "their folder as the source", "source: bundled"):
        assert way in caught.value.hint
    write_cache(home, released_files())
    with pytest.raises(DataError, match="cannot get ada-f/rel at 'v9'"):
        fetch_release("v9")


@pytest.mark.parametrize("revision", ["", "two words", "\n"])
def test_what_is_no_revision_is_refused(revision: str) -> None:
    with pytest.raises(ConfigError, match="is no revision"):
        fetch_release(revision)


def test_hub_is_a_source_of_instances(home: Path) -> None:
    files = released_files()
    made = [render_record(one).encode() for one in generate("REL-A1", per_level=125, seed=1)]
    files["algebra/REL-A1_3x3.jsonl"] = b"\n".join(made)
    write_cache(home, files)
    found = read_instances("hub", tasks=["REL-A1"], skip_bad=True)
    assert len(found) == 125
    assert {one.source_file for one in found} == {"REL-A1_3x3.jsonl"}


# Against a Hub of our own, in processes as a user starts them.


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with (tmp_path / "downloads.txt").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("published_hub.py"))],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(),
            text=True,
        )
    assert server.stdout is not None
    with server.stdout:
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.kill()
        server.wait()


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return {**kept, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", "NO_COLOR": "1", **changes}


def fetch(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rel_batch", "data", "fetch", *arguments],
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def downloads(folder: Path) -> list[str]:
    return (folder / "downloads.txt").read_text().splitlines()


def test_a_branch_becomes_a_commit_and_a_broken_download_resumes(
    tmp_path: Path, endpoint: str
) -> None:
    home = tmp_path / "home"
    done = fetch("-o", str(tmp_path / "copy"), HF_HOME=str(home), HF_ENDPOINT=endpoint)
    assert done.returncode == 0, done.stderr
    assert "12,968 records (published: 12,952)" in done.stdout
    assert COMMIT in done.stdout
    assert {p.name for p in (tmp_path / "copy").rglob("*.jsonl")} == {Path(f).name for f in FILES}
    assert len(downloads(tmp_path)) == 24
    lost = next(home.rglob("REL-C3.jsonl"))
    lost.resolve().unlink()
    lost.unlink()
    again = fetch(HF_HOME=str(home), HF_ENDPOINT=endpoint)
    assert again.returncode == 0, again.stderr
    assert [Path(path).name for path in downloads(tmp_path)[24:]] == ["REL-C3.jsonl"]


def test_a_revision_that_does_not_exist_is_refused(tmp_path: Path, endpoint: str) -> None:
    done = fetch("--revision", "v9", HF_HOME=str(tmp_path / "home"), HF_ENDPOINT=endpoint)
    assert done.returncode == 3
    assert "ada-f/rel has no revision 'v9'" in done.stderr
    assert downloads(tmp_path) == []


def test_a_run_records_which_release_it_read(tmp_path: Path) -> None:
    files = released_files()
    made = [render_record(one).encode() for one in generate("REL-A1", per_level=125, seed=1)]
    files["algebra/REL-A1_3x3.jsonl"] = b"\n".join(made)
    write_cache(tmp_path / "home", files)
    config = tmp_path / "run.yaml"
    config.write_text(
        "run: r\nmodel: {path: none}\nengine: {kind: fake}\n"
        "instances: {source: hub, tasks: [REL-A1], limit: 2, skip_bad: true, revision: main}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "rel_batch", "run", str(config)],
        env=environment(HF_HOME=str(tmp_path / "home"), HF_HUB_OFFLINE="1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    released = json.loads((tmp_path / "outputs/r/manifest.json").read_text())["released"]
    assert (released["repo"], released["revision"], released["commit"]) == (
        *("ada-f/rel", "main"),
        COMMIT,
    )
    assert set(released["sha256"]) == set(FILES)
