"""REL as it is published: the dataset `ada-f/rel` on the Hugging Face Hub, at one commit.

    release = fetch_release(revision="main")
    release.commit, release.files["chemistry/REL-C1.jsonl"].sha256

A branch or tag is resolved to a commit, which is recorded with a hash of every file: give that
commit as the revision to get the same bytes again. Files are kept in huggingface_hub's own cache,
so that a download that broke off resumes and a machine without a network uses what is there.

Surprising: the published total is 12,952, but the files that were counted hold 12,968: 16 more in
REL-C2 than a round 1,000. Both counts of that file are accepted; any other is an error.
"""

# huggingface_hub is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rel_batch.errors import ConfigError, DataError

REPO = "ada-f/rel"
HUB = "hub"

PUBLISHED_TOTAL = 12_952
_BIOLOGY = tuple(f"biology/REL-B1_{i:03d}.jsonl" for i in range(1, 13))
BIOLOGY_TOTAL = 7_952
# How many records each file holds. Of REL-B1 only the total is published.
COUNTS: Mapping[str, tuple[int, ...]] = {
    **{f"algebra/REL-A{i}_{n}x{n}.jsonl": (125,) for i in range(1, 5) for n in (3, 9)},
    "chemistry/REL-C1.jsonl": (1_000,),
    "chemistry/REL-C2.jsonl": (1_016, 1_000),
    "chemistry/REL-C3.jsonl": (1_000,),
    "chemistry/REL-C4.jsonl": (1_000,),
}
FILES: tuple[str, ...] = tuple(sorted((*COUNTS, *_BIOLOGY)))

_ELSEWHERE = (
    f"without a network: run `rel-batch data fetch` on a machine that has one, copy its Hub cache "
    f"(HF_HOME, the folder datasets--{REPO.replace('/', '--')}) here and set HF_HUB_OFFLINE=1; or "
    "copy the .jsonl files and give their folder as the source; or use source: bundled"
)


@dataclass(frozen=True, slots=True)
class ReleasedFile:
    sha256: str
    num_records: int


@dataclass(frozen=True, slots=True)
class Release:
    """The dataset at one commit, on this machine.

    `revision` is what was asked for, `files` what each file of `folder` is, by its path there.
    """

    revision: str
    commit: str
    folder: Path
    files: Mapping[str, ReleasedFile]

    @property
    def num_records(self) -> int:
        return sum(file.num_records for file in self.files.values())

    def record(self) -> dict[str, object]:
        """What a manifest says of it."""
        return {
            "repo": REPO,
            "revision": self.revision,
            "commit": self.commit,
            "sha256": {name: file.sha256 for name, file in self.files.items()},
        }


def fetch_release(revision: str | None = None) -> Release:
    """The dataset at a branch, tag or commit ("main" if None), downloaded where it is not cached.

    Raises DataError where it cannot be had (and says what to do), lacks a file, or where a file
    holds another number of records than was published; ConfigError for what is no revision.
    """
    asked = "main" if revision is None else revision
    if not asked.strip() or any(character.isspace() for character in asked):
        raise ConfigError(f"{asked!r} is no revision", hint="give a branch, a tag or a commit")
    folder = _download(asked)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"{REPO} at {folder.name} is incomplete here: {len(missing)} of {len(FILES)} files are "
            f"missing, the first is {missing[0]}",
            hint="run the same command with a network: what is there is kept; " + _ELSEWHERE,
        )
    files = {name: _read_file(folder / name) for name in FILES}
    _check_counts(files, folder.name)
    return Release(asked, folder.name, folder, files)


def copy_release(release: Release, folder: Path) -> None:
    """Put the files into a folder of one's own. Raises DataError."""
    try:
        for name in release.files:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.partial")
            shutil.copyfile(release.folder / name, partial)
            partial.replace(target)
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}") from error


def _download(revision: str) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    snapshot_download: Any = huggingface_hub.snapshot_download  # its progress bar has no type
    try:
        folder = snapshot_download(
            REPO, repo_type="dataset", revision=revision, allow_patterns=list(FILES)
        )
    except RevisionNotFoundError as error:
        raise DataError(
            f"{REPO} has no revision {revision!r}",
            hint="give a branch, a tag or a commit of the dataset; main is the newest",
        ) from error
    except RepositoryNotFoundError as error:
        raise DataError(
            f"the Hub has no dataset {REPO}, or does not show it without a token",
            hint="set HF_TOKEN if it has become private; " + _ELSEWHERE,
        ) from error
    # Its HTTP library's own errors are OSErrors or not, by version: none of them is ours to name.
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError, RuntimeError) as error:
        lines = str(error).strip().splitlines()
        raise DataError(
            f"cannot get {REPO} at {revision!r}: {lines[0] if lines else type(error).__name__}",
            hint=_ELSEWHERE,
        ) from error
    return Path(folder)


def _read_file(path: Path) -> ReleasedFile:
    digest = hashlib.sha256()
    num_records = 0
    try:
        with path.open("rb") as file:
            for line in file:
                digest.update(line)
                num_records += bool(line.strip())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    return ReleasedFile(digest.hexdigest(), num_records)


def _check_counts(files: Mapping[str, ReleasedFile], commit: str) -> None:
    wrong = [
        f"{name} holds {files[name].num_records:,} records, not {counts[0]:,}"
        for name, counts in COUNTS.items()
        if files[name].num_records not in counts
    ]
    biology = sum(files[name].num_records for name in _BIOLOGY)
    if biology != BIOLOGY_TOTAL:
        wrong.append(f"the files of REL-B1 hold {biology:,} records, not {BIOLOGY_TOTAL:,}")
    if wrong:
        raise DataError(
            f"{REPO} at {commit} is not the published set: {'; '.join(wrong)}",
            hint="give the commit of the published set as the revision; if the set has grown, "
            "copy the files and give their folder as the source, and its counts with the results",
        )
