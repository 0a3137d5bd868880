"""The run folder: everything that a run is and has, as files that any program can read.

    manifest.json        what this run is; written once, last
    instances.parquet    the frozen instances
    requests.parquet     every planned request
    completions/chunk-00012.part-00.parquet   complete or absent, never half
    completions/arm-format.part-00.parquet    parts that were merged (compaction.py)
    scores/<version>/chunk-00012.part-00.parquet   the scores of that part, row by row

Law: whatever is killed at whatever moment, a request has at most one row in what
`iter_completions` gives (`parts.py` says which).

Files with other names are ignored, everywhere. Surprising: duplicates are only looked for
within a chunk, since a request belongs to one chunk; that bounds the memory of a reader.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rel_batch.errors import StoreError
from rel_batch.records import Completion, Instance, PlannedRequest
from rel_batch.store.disk import (
    FileGoneError,
    NameTakenError,
    disk_errors,
    file_names,
    make_folder,
)
from rel_batch.store.manifest import (
    MANIFEST,
    check_identity,
    publish_intent,
    read_manifest,
    take_intent,
)
from rel_batch.store.parquet import (
    read_batches,
    read_columns,
    read_notes,
    read_num_rows,
    read_row_lists,
    read_rows,
    write_rows,
)
from rel_batch.store.parts import (
    Parts,
    Rows,
    chunk_of,
    first_of_each_key,
    list_parts,
    listed_again,
    next_part_number,
    part_name,
)
from rel_batch.store.schemas import COMPLETIONS, INSTANCES, REQUESTS, SCORES, ScoreRow
from rel_batch.store.surrogates import storable
from rel_batch.store.work import Work, render_work

REQUESTS_FILE = "requests.parquet"

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
        for file in self._request_files:
            yield from read_rows(file, REQUESTS, chunk=chunk)

    def read_request_columns(self, *columns: str) -> Iterator[tuple[list[Any], ...]]:
        """Some columns of the planned requests, batch by batch."""
        for file in self._request_files:
            yield from read_columns(file, REQUESTS, columns)

    def iter_request_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """The same as Arrow record batches."""
        for file in self._request_files:
            yield from read_batches(file, REQUESTS, columns)

    def count_planned(self) -> Counter[tuple[str, str, str]]:
        """How many requests were planned for each (task, subset, arm)."""
        subsets = dict(self.read_instance_columns("key", "subset"))
        planned: Counter[tuple[str, str, str]] = Counter()
        columns = ("task", "instance_key", "arm")
        for tasks, keys, arms in self.read_request_columns(*columns):
            planned.update(zip(tasks, map(subsets.__getitem__, keys), arms, strict=True))
        return planned

    # What has become of it.

    def list_parts(self) -> Parts:
        """The files of completions, as they are now."""
        return list_parts(self.path / "completions")

    def completion_parts(self, chunk: int | None = None) -> list[Path]:
        """The files that have rows, or may have rows of one chunk, in the order that counts."""
        parts = self.list_parts()
        return list(parts.files if chunk is None else parts.of_chunk(chunk))

    def finished_keys(self, chunk: int | None = None) -> set[str]:
        """The keys of the requests that have a row, of one chunk or of all."""
        finished: set[str] = set()
        read: set[Path] = set()
        parts = self.list_parts()
        while True:
            try:
                for part in parts.files if chunk is None else parts.of_chunk(chunk):
                    if part not in read:
                        columns = read_columns(part, COMPLETIONS, ["request_key"], chunk=chunk)
                        finished.update(*(keys for (keys,) in columns))
                        read.add(part)
                return finished
            except FileGoneError as error:
                parts = listed_again(parts, self.list_parts, error)

    def publish_part(
        self,
        chunk: int,
        completions: Sequence[Completion],
        *,
        worker: str = "",
        started: float | None = None,
    ) -> Path:
        """Publish completions of one chunk as its next part, and give the part's path.

        Any number of workers may do this at once; none replaces another's part. `worker` has made
        them since `started` (seconds since 1970), which the part says too. A lone surrogate in a
        text becomes U+FFFD, and the row's `error` says so. Raises StoreError where the disk fails;
        then there is no part.
        """
        if not completions or any(completion.chunk != chunk for completion in completions):
            raise ValueError(f"a part of chunk {chunk} needs completions of that chunk")
        folder = self.path / "completions"
        make_folder(folder)
        number = next_part_number(folder, chunk)
        rows = [storable(completion) for completion in completions]
        now = time.time()
        work = Work.of(rows, now if started is None else started, now)
        notes = {"part_id": secrets.token_hex(8), "work": render_work({worker: work})}
        while True:
            part = folder / part_name(chunk, number)
            try:
                write_rows(part, COMPLETIONS, rows, replace=False, notes=notes)
            except NameTakenError:
                number += 1
            else:
                return part

    def read_part(self, part: Path, *, omit: Collection[str] = ()) -> Iterator[Completion]:
        """The completions of one part as they are on disk, in bounded memory.

        `omit` names columns that are not read: the token ids, which are most of a part's weight
        and then (), the thought, which is then "", and any that may be None.
        """
        for rows in self._read_part(part, omit):
            yield from rows

    def iter_completions(self, *, omit: Collection[str] = ()) -> Iterator[Completion]:
        """One completion for each finished request, chunk by chunk, in bounded memory."""
        return first_of_each_key(
            self.list_parts, lambda part: _by_chunk(self._read_part(part, omit))
        )

    def _read_part(self, part: Path, omit: Collection[str]) -> Iterator[list[Completion]]:
        chunk = chunk_of(part.name)
        for rows in read_row_lists(part, COMPLETIONS, omit=tuple(omit)):
            # A part under another chunk's name would defeat the search for duplicates.
            if chunk is not None and any(row.chunk != chunk for row in rows):
                other = next(row.chunk for row in rows if row.chunk != chunk)
                raise StoreError(
                    f"{part} holds a row of chunk {other}",
                    hint="A part was renamed or copied; give it back the name it had.",
                )
            yield rows

    def count_rows(self, parts: Iterable[Path]) -> int:
        """How many rows parts have; only their footers are read."""
        num_rows = 0
        for part in parts:
            with contextlib.suppress(FileGoneError):  # merged meanwhile, and so in another part
                num_rows += read_num_rows(part, COMPLETIONS)
        return num_rows

    # What it is worth.

    def score_folder(self, version: str) -> Path:
        """Where the scores of a version lie."""
        return self.path / "scores" / version

    def score_versions(self) -> list[str]:
        """The versions of which there are scores."""
        names = file_names(self.path / "scores")
        return sorted(name for name in names if self.score_folder(name).is_dir())

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
        folder = self.score_folder(version)
        make_folder(folder.parent)
        make_folder(folder)
        notes = {
            "part_id": read_notes(part, COMPLETIONS).get("part_id", ""),
            "extras": ",".join(sorted(extras)),
        }
        rows = _exactly(rows, read_num_rows(part, COMPLETIONS))
        return write_rows(folder / part.name, SCORES, rows, replace=True, notes=notes)

    def is_scored(self, version: str, part: Path, extras: Collection[str] = ()) -> bool:
        """Whether a part has scores of this version, with these extras at least.

        Raises FileGoneError where there is no such part.
        """
        scores = self.score_folder(version) / part.name
        with disk_errors("read", scores):
            scored = scores.exists()
        # Read even where there are no scores: they may be gone because the part was merged.
        part_id = read_notes(part, COMPLETIONS).get("part_id", "")
        if not scored:
            return False
        notes = read_notes(scores, SCORES)
        # Scores outlive a part that was moved away, and a new part may get the same name.
        return notes.get("part_id") == part_id and (
            set(extras) <= set(notes.get("extras", "").split(","))
        )

    def unscored_parts(self, version: str, extras: Collection[str] = ()) -> list[Path]:
        """The completion parts that have no scores of this version with these extras."""
        parts = self.list_parts()
        while True:
            try:
                return [p for p in parts.files if not self.is_scored(version, p, extras)]
            except FileGoneError as error:
                parts = listed_again(parts, self.list_parts, error)

    def read_scores(self, version: str, part: Path) -> Iterator[ScoreRow] | None:
        """The scores of one part in the order of its rows, or None where there are none."""
        if not self.is_scored(version, part):
            return None
        return read_rows(self.score_folder(version) / part.name, SCORES)

    def iter_scores(self, version: str) -> Iterator[ScoreRow]:
        """One score for each finished request that is scored, in bounded memory."""
        return first_of_each_key(self.list_parts, lambda part: self._score_rows(version, part))

    def iter_scored(
        self, version: str, *, omit: Collection[str] = ()
    ) -> Iterator[tuple[Completion, ScoreRow | None]]:
        """Each finished request's completion with its score, None where it has none yet."""
        return first_of_each_key(
            self.list_parts, lambda part: self._read_scored(version, part, omit)
        )

    def _score_rows(self, version: str, part: Path) -> Iterator[Rows[ScoreRow]]:
        scores = self.read_scores(version, part)
        if scores is None:
            return
        chunk = chunk_of(part.name)
        if chunk is not None:
            while rows := list(itertools.islice(scores, SCORES.batch_rows)):
                yield chunk, [row.request_key for row in rows], rows
            return
        for chunks, keys in read_columns(part, COMPLETIONS, ["chunk", "request_key"]):
            rows = list(itertools.islice(scores, len(keys)))
            if [row.request_key for row in rows] != keys:
                raise self.misaligned(version, part)
            yield from _runs(chunks, keys, rows)

    def _read_scored(
        self, version: str, part: Path, omit: Collection[str]
    ) -> Iterator[Rows[tuple[Completion, ScoreRow | None]]]:
        scores = self.read_scores(version, part)
        for completions in self._read_part(part, omit):
            found: list[ScoreRow | None] = [None] * len(completions)
            if scores is not None:
                found = list(itertools.islice(scores, len(completions)))
            keys = [row.request_key for row in completions]
            if scores is not None and [row and row.request_key for row in found] != keys:
                raise self.misaligned(version, part)
            rows = list(zip(completions, found, strict=True))
            yield from _runs([row.chunk for row in completions], keys, rows)

    def misaligned(self, version: str, part: Path) -> StoreError:
        return StoreError(
            f"{self.score_folder(version) / part.name} does not follow the rows of {part}",
            hint="Move the scores out of the run folder and score the run again.",
        )

    @property
    def _instances(self) -> Path:
        return self.path / "instances.parquet"

    @property
    def _request_files(self) -> list[Path]:
        # Arms that were appended to the run have files of their own (extend.py).
        names: list[str] = self.manifest.get("request_files", [REQUESTS_FILE])
        return [self.path / name for name in names]


def _write_inputs(
    path: Path, instances: Iterable[Instance], requests: Iterable[PlannedRequest]
) -> None:
    try:
        write_rows(path / "instances.parquet", INSTANCES, instances, replace=True)
        write_rows(path / REQUESTS_FILE, REQUESTS, requests, replace=True)
    except UnicodeEncodeError as error:
        text = str(error.object)
        around = text[max(0, error.start - 30) : error.start].encode("ascii", "replace").decode()
        raise StoreError(
            f"an instance holds a lone surrogate (U+{ord(text[error.start]):04X}) after "
            f"{around!r}, which is not a character and cannot be stored",
            hint="Remove it from the instance file.",
        ) from error


def _by_chunk(batches: Iterable[list[Completion]]) -> Iterator[Rows[Completion]]:
    for rows in batches:
        keys = [row.request_key for row in rows]
        yield from _runs([row.chunk for row in rows], keys, rows)


def _runs(chunks: list[int], keys: list[str], rows: list[_Row]) -> Iterator[Rows[_Row]]:
    """The rows, cut where the chunk changes."""
    start = 0
    for chunk, group in itertools.groupby(chunks):
        end = start + sum(1 for _ in group)
        yield chunk, keys[start:end], rows[start:end]
        start = end


def _exactly(rows: Iterable[_Row], num_rows: int) -> Iterator[_Row]:
    """The rows, of which there must be `num_rows`. Raises ValueError after the last."""
    given = 0
    for row in rows:
        given += 1
        yield row
    if given != num_rows:
        raise ValueError(f"{given} scores for a part of {num_rows} rows")
