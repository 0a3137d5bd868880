"""The run folder: everything that a run is and has, as files that any program can read.

    manifest.json        what this run is; written once, last
    instances.parquet    the frozen instances
    requests.parquet     every planned request
    completions/chunk-00012.part-00.parquet   complete or absent, never half
    scores/<version>/chunk-00012.part-00.parquet   the scores of that part, row by row

Law: whatever is killed at whatever moment, a request has at most one row in what
`iter_completions` gives. A key can be in two parts, because a slow worker may publish a chunk
that another took over; then the row of the first part counts (parts in the order of chunk and
number, rows in file order), so a row that was read once is never replaced by a later one.

Files with other names are ignored, everywhere. Surprising: duplicates are only looked for
within a chunk, since a request belongs to one chunk; that bounds the memory of a reader.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from rel_batch.errors import StoreError
from rel_batch.records import Completion, Instance, PlannedRequest
from rel_batch.store.disk import NameTakenError, disk_errors, file_names, make_folder
from rel_batch.store.manifest import (
    MANIFEST,
    check_identity,
    publish_intent,
    read_manifest,
    take_intent,
)
from rel_batch.store.parquet import (
    read_columns,
    read_notes,
    read_num_rows,
    read_rows,
    write_rows,
)
from rel_batch.store.schemas import COMPLETIONS, INSTANCES, REQUESTS, SCORES, ScoreRow

_PART_NAME = re.compile(r"chunk-(\d{5,9})\.part-(\d{2,9})\.parquet", re.ASCII)

_SURROGATE = re.compile("[\ud800-\udfff]")

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run on disk. Holds no state but where it is and what its manifest says."""

    path: Path
    manifest: Mapping[str, Any]

    @classmethod
    def create(
        cls,
        path: Path,
        manifest: Mapping[str, Any],
        instances: Iterable[Instance],
        requests: Iterable[PlannedRequest],
    ) -> RunFolder:
        """Create a run, or finish an interrupted creation of the same run.

        `manifest["identity"]` is what makes two runs the same. `requests` is streamed: a
        million are written in bounded memory. Raises StoreError where the folder is a run
        already, belongs to another run, or holds something else.
        """
        if read_manifest(path) is not None:
            raise StoreError(
                f"{path} is a run already: {path / MANIFEST} exists",
                hint="Resume it with the same command, or give the new run another folder.",
            )
        return cls.create_or_resume(path, manifest, instances, requests)

    @classmethod
    def create_or_resume(
        cls,
        path: Path,
        manifest: Mapping[str, Any],
        instances: Iterable[Instance],
        requests: Iterable[PlannedRequest],
    ) -> RunFolder:
        """Create the run, or open it where it exists and has the same identity.

        `instances` and `requests` are consumed only where the run is created. Of two creators
        in the same second one decides what the run is and the other resumes it or is refused.
        Nothing that exists is changed or deleted. Raises StoreError.
        """
        make_folder(path, parents=True)
        if read_manifest(path) is None:
            take_intent(path, manifest)
            # Looked at again, because the intent could also be taken just after a creation.
            if read_manifest(path) is None:
                make_folder(path / "completions")
                _write_inputs(path, instances, requests)
        return cls(path, publish_intent(path, manifest))

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run. Raises StoreError where there is none."""
        manifest = read_manifest(path)
        if manifest is None:
            raise StoreError(
                f"there is no run in {path}: it has no {MANIFEST}",
                hint="Check the path. If the run was interrupted while it was being created, "
                "start the same command again.",
            )
        return cls(path, manifest)

    def check_identity(self, manifest: Mapping[str, Any]) -> None:
        """Raise StoreError, with the differences in two columns, where this is another run."""
        check_identity(self.path / MANIFEST, self.manifest, manifest)

    # What was planned.

    def read_instances(self) -> tuple[Instance, ...]:
        """All instances, in the order in which they were given."""
        return tuple(self.iter_instances())

    def iter_instances(self) -> Iterator[Instance]:
        """The same, in bounded memory."""
        return read_rows(self._instances, INSTANCES)

    def read_instance_columns(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Some columns of the instances, without the questions' weight, row by row."""
        for values in read_columns(self._instances, INSTANCES, columns):
            yield from zip(*values, strict=True)

    def instances_stamp(self) -> tuple[int, int]:
        """What changes when this folder holds other instances: inode and time of writing."""
        with disk_errors("read", self._instances):
            found = self._instances.stat()
        return found.st_ino, found.st_mtime_ns

    def iter_requests(self, chunk: int | None = None) -> Iterator[PlannedRequest]:
        """The planned requests, of one chunk or of all, in the order of the plan."""
        return read_rows(self._requests, REQUESTS, chunk=chunk)

    def count_planned(self) -> Counter[tuple[str, str, str]]:
        """How many requests were planned for each (task, subset, arm)."""
        subsets = dict(self.read_instance_columns("key", "subset"))
        planned: Counter[tuple[str, str, str]] = Counter()
        columns = ("task", "instance_key", "arm")
        for tasks, keys, arms in read_columns(self._requests, REQUESTS, columns):
            planned.update(zip(tasks, map(subsets.__getitem__, keys), arms, strict=True))
        return planned

    # What has become of it.

    def completion_parts(self, chunk: int | None = None) -> list[Path]:
        """The parts that are complete, of one chunk or of all, by chunk and number."""
        folder = self.path / "completions"
        numbered = [(*number, name) for name in file_names(folder) if (number := _number(name))]
        return [folder / n for c, _, n in sorted(numbered) if chunk is None or c == chunk]

    def finished_keys(self, chunk: int | None = None) -> set[str]:
        """The keys of the requests that have a row, of one chunk or of all."""
        finished: set[str] = set()
        for part in self.completion_parts(chunk):
            for (keys,) in read_columns(part, COMPLETIONS, ["request_key"]):
                finished.update(keys)
        return finished

    def publish_part(self, chunk: int, completions: Sequence[Completion]) -> Path:
        """Publish completions of one chunk as its next part, and give the part's path.

        Any number of workers may do this at once; none replaces another's part. A lone
        surrogate in a text becomes U+FFFD, and the row's `error` says so. Raises StoreError
        where the disk fails; then there is no part.
        """
        if not completions or any(completion.chunk != chunk for completion in completions):
            raise ValueError(f"a part of chunk {chunk} needs completions of that chunk")
        folder = self.path / "completions"
        make_folder(folder)
        number = self._next_number(chunk)
        rows = [_storable(completion) for completion in completions]
        part_id = secrets.token_hex(8)
        while True:
            part = folder / f"chunk-{chunk:05d}.part-{number:02d}.parquet"
            try:
                write_rows(part, COMPLETIONS, rows, replace=False, notes={"part_id": part_id})
            except NameTakenError:
                number += 1
            else:
                return part

    def read_part(self, part: Path, *, omit: Collection[str] = ()) -> Iterator[Completion]:
        """The completions of one part as they are on disk, in bounded memory.

        `omit` names columns that are not read: the token ids, which are most of a part's weight
        and then (), the thought, which is then "", and any that may be None.
        """
        number = _number(part.name)
        for completion in read_rows(part, COMPLETIONS, omit=tuple(omit)):
            # A part under another chunk's name would defeat the search for duplicates.
            if number is None or completion.chunk != number[0]:
                raise StoreError(
                    f"{part} holds a row of chunk {completion.chunk}",
                    hint="A part was renamed or copied; give it back the name it had.",
                )
            yield completion

    def iter_completions(self, *, omit: Collection[str] = ()) -> Iterator[Completion]:
        """One completion for each finished request, in bounded memory."""
        return _first_of_each_key(
            self.completion_parts(),
            lambda part: self.read_part(part, omit=omit),
            lambda completion: completion.request_key,
        )

    def count_rows(self, parts: Iterable[Path]) -> int:
        """How many rows parts have; only their footers are read."""
        return sum(read_num_rows(part, COMPLETIONS) for part in parts)

    # What it is worth.

    def publish_scores(
        self,
        version: str,
        part: Path,
        rows: Iterable[ScoreRow],
        *,
        extras: Collection[str] = (),
    ) -> int:
        """Publish the scores of a part, one row for each of its rows and in their order.

        Gives the number of rows. `extras` names what was computed beyond the strict verdict.
        Scores of the same part and version are replaced: they are the same, have fewer extras,
        or are about a part that is no longer there.
        """
        folder = self._score_folder(version)
        make_folder(folder.parent)
        make_folder(folder)
        notes = {
            "part_id": read_notes(part, COMPLETIONS).get("part_id", ""),
            "extras": ",".join(sorted(extras)),
        }
        rows = _exactly(rows, read_num_rows(part, COMPLETIONS))
        return write_rows(folder / part.name, SCORES, rows, replace=True, notes=notes)

    def unscored_parts(self, version: str, extras: Collection[str] = ()) -> list[Path]:
        """The completion parts that have no scores of this version with these extras."""
        parts = self.completion_parts()
        return [part for part in parts if not self._is_scored(version, part, extras)]

    def read_scores(self, version: str, part: Path) -> Iterator[ScoreRow] | None:
        """The scores of one part in the order of its rows, or None where there are none."""
        if not self._is_scored(version, part, ()):
            return None
        return read_rows(self._score_folder(version) / part.name, SCORES)

    def iter_scores(self, version: str) -> Iterator[ScoreRow]:
        """One score for each finished request that is scored, in bounded memory."""
        return _first_of_each_key(
            self.completion_parts(),
            lambda part: self.read_scores(version, part) or (),
            lambda row: row.request_key,
        )

    def iter_scored(
        self, version: str, *, omit: Collection[str] = ()
    ) -> Iterator[tuple[Completion, ScoreRow | None]]:
        """Each finished request's completion with its score, None where it has none yet."""
        return _first_of_each_key(
            self.completion_parts(),
            lambda part: self._read_scored(version, part, omit),
            lambda pair: pair[0].request_key,
        )

    def _read_scored(
        self, version: str, part: Path, omit: Collection[str]
    ) -> Iterator[tuple[Completion, ScoreRow | None]]:
        scores = self.read_scores(version, part)
        if scores is None:
            scores = itertools.repeat(None)
        for completion, score in zip(self.read_part(part, omit=omit), scores, strict=False):
            if score is not None and score.request_key != completion.request_key:
                raise StoreError(
                    f"{self._score_folder(version) / part.name} does not follow the rows of {part}",
                    hint="Move the scores out of the run folder and score the run again.",
                )
            yield completion, score

    @property
    def _instances(self) -> Path:
        return self.path / "instances.parquet"

    @property
    def _requests(self) -> Path:
        return self.path / "requests.parquet"

    def _score_folder(self, version: str) -> Path:
        return self.path / "scores" / version

    def _is_scored(self, version: str, part: Path, extras: Collection[str]) -> bool:
        """Whether this part has scores of this version, with these extras at least."""
        scores = self._score_folder(version) / part.name
        with disk_errors("read", scores):
            if not scores.exists():
                return False
        notes = read_notes(scores, SCORES)
        # Scores outlive a part that was moved away, and a new part may get the same name.
        same_part = notes.get("part_id") == read_notes(part, COMPLETIONS).get("part_id", "")
        return same_part and set(extras) <= set(notes.get("extras", "").split(","))

    def _next_number(self, chunk: int) -> int:
        parts = self.completion_parts(chunk)
        number = _number(parts[-1].name) if parts else None
        return 0 if number is None else number[1] + 1


def _write_inputs(
    path: Path, instances: Iterable[Instance], requests: Iterable[PlannedRequest]
) -> None:
    try:
        write_rows(path / "instances.parquet", INSTANCES, instances, replace=True)
        write_rows(path / "requests.parquet", REQUESTS, requests, replace=True)
    except UnicodeEncodeError as error:
        text = str(error.object)
        around = text[max(0, error.start - 30) : error.start].encode("ascii", "replace").decode()
        raise StoreError(
            f"an instance holds a lone surrogate (U+{ord(text[error.start]):04X}) after "
            f"{around!r}, which is not a character and cannot be stored",
            hint="Remove it from the instance file.",
        ) from error


def _number(name: str) -> tuple[int, int] | None:
    """(chunk, part) of a part's file name; None for any other name."""
    found = _PART_NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


def _first_of_each_key(
    parts: Iterable[Path], read: Callable[[Path], Iterable[_Row]], key: Callable[[_Row], str]
) -> Iterator[_Row]:
    seen: set[str] = set()
    chunk = None
    for part in parts:
        number = _number(part.name)
        if number is None or number[0] != chunk:
            seen = set()
            chunk = number and number[0]
        for row in read(part):
            if (name := key(row)) not in seen:
                seen.add(name)
                yield row


def _exactly(rows: Iterable[_Row], num_rows: int) -> Iterator[_Row]:
    """The rows, of which there must be `num_rows`. Raises ValueError after the last."""
    given = 0
    for row in rows:
        given += 1
        yield row
    if given != num_rows:
        raise ValueError(f"{given} scores for a part of {num_rows} rows")


def _storable(completion: Completion) -> Completion:
    """The completion with each lone surrogate replaced by U+FFFD, and a note in `error`."""
    fields: tuple[Literal["reply", "thought", "error"], ...] = ("reply", "thought", "error")
    changes: dict[str, str] = {}
    for name in fields:
        text: str | None = getattr(completion, name)
        if (
            text is not None
            and not text.isascii()
            and (clean := _SURROGATE.sub("\ufffd", text)) != text
        ):
            changes[name] = clean
    if not changes:
        return completion
    note = f"lone surrogates in {' and '.join(changes)} were replaced by U+FFFD"
    error = changes.get("error", completion.error)
    changes["error"] = note if error is None else f"{error}; {note}"
    return dataclasses.replace(completion, **changes)
