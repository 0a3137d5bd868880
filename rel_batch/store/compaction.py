"""Merging the parts of a run into few large files, one or more for each arm.

    compact(run)   ->  Compaction(num_before=5120, num_after=4, num_rows=1_000_000, ...)

What is merged is sorted by chunk, instance and sample, has the columns of a part, and its scores
are merged with it. The steps are: write the new files, read them back, and only then remove what
they hold.

Law: a file of completions is removed only when each of its rows has been read back from files
that count before it: a part's from merged files, a merged file's from those with higher numbers.
So whatever is killed, and however many compactions and workers are at work, each row is always in
a file, and nothing needs a lock. What a killed compaction leaves (rows that are in two files, a
temporary file) costs readers nothing, and the next one clears it away.

Surprising: chunks with a part that is not scored in each version of which the run has scores are
left as they are, because the scores of a merged file are complete or absent. Score the run first.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from rel_batch.errors import StoreError
from rel_batch.store.clock import file_system_now
from rel_batch.store.disk import FileGoneError, NameTakenError, disk_errors, file_names
from rel_batch.store.merging import mergeable_parts, write_merged
from rel_batch.store.parquet import read_columns, read_notes
from rel_batch.store.parts import chunk_of, listed_again, merged_number
from rel_batch.store.run_folder import RunFolder
from rel_batch.store.schemas import COMPLETIONS, SCORES

# A temporary file that nobody has written to for so long is of a compaction that was killed.
_ABANDONED_S = 3_600.0
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction has done.

    Attributes:
        num_before, num_after: files of completions that there were, and are now.
        num_rows: rows in the new files; 0 where there was nothing to merge.
        num_unscored: parts that were left because scores of some version are missing.
    """

    num_before: int
    num_after: int
    num_rows: int
    num_unscored: int


def compact(run: RunFolder) -> Compaction:
    """Merge what workers have published, also while they publish more.

    Raises StoreError where a file cannot be read or written, or where what was written is not
    what is read back; then nothing was removed.
    """
    num_before = len(run.completion_parts())
    versions = run.score_versions()
    _remove_abandoned(run, versions)
    _remove_held(run, None)
    num_rows = num_unscored = 0
    for _ in range(_TRIES):
        parts = run.list_parts()
        mergeable = mergeable_parts(run, parts, versions)
        num_unscored = len(parts.files) - len(mergeable.files)
        if not mergeable.by_chunk and _num_compactions(mergeable.merged) < 2:
            break
        try:
            new, num_rows = write_merged(run, mergeable, versions)
        except (NameTakenError, FileGoneError):
            continue  # another compaction was faster; what it has left is for this one
        if _is_verified(run, new, num_rows, versions):
            _remove_held(run, new)
        break
    _remove_orphaned_scores(run, versions)
    return Compaction(num_before, len(run.completion_parts()), num_rows, num_unscored)


def _num_compactions(merged: Iterable[Path]) -> int:
    try:
        return len({read_notes(path, COMPLETIONS).get("compaction") for path in merged})
    except FileGoneError:
        return 2  # another one is at work


# Reading back and removing.


def _is_verified(
    run: RunFolder, new: Sequence[Path], num_rows: int, versions: Iterable[str]
) -> bool:
    """Whether the new files are there still; another compaction may have merged them already.

    Raises StoreError where they do not hold what was written to them.
    """
    found = 0
    try:
        for _, group in itertools.groupby(_keys_by_chunk(new), key=itemgetter(0)):
            keys = [key for _, _, keys in group for key in keys]
            found += len(keys) if len(set(keys)) == len(keys) else -num_rows
        scored = all(run.is_scored(version, path) for version in versions for path in new)
    except FileGoneError:
        return False
    if found != num_rows or not scored:
        raise StoreError(
            f"what is read back from {', '.join(path.name for path in new)} in {new[0].parent} "
            f"is not the {num_rows} scored rows that were written",
            hint="Nothing was removed. Look for a bad disk, then move these files away.",
        )
    return True


def _remove_held(run: RunFolder, new: Sequence[Path] | None) -> None:
    """Remove each file whose every row is in `new`; without it, each part that is in merged files.

    Raises StoreError.
    """
    parts = run.list_parts()
    while True:
        holders = [path for path in parts.merged if new is None or path in new]
        lowest = min((merged_number(path.name) or 0 for path in holders), default=0)
        older = [path for path in parts.merged if (merged_number(path.name) or 0) < lowest]
        try:
            held = _held_by(holders, [*(older if new else ()), *parts.published])
        except FileGoneError as error:
            parts = listed_again(parts, run.list_parts, error)
            continue
        versions = run.score_versions()
        for path in held:
            # First the completions: a reader that misses the scores sees that they are gone too.
            for file in (path, *(run.score_folder(version) / path.name for version in versions)):
                with disk_errors("remove", file):
                    file.unlink(missing_ok=True)
        return


def _held_by(holders: Sequence[Path], files: Sequence[Path]) -> list[Path]:
    """Those of `files` whose every row, by key, is in one of `holders`."""
    if not holders:
        return []
    held_files = set(files)
    streams = heapq.merge(_keys_by_chunk(holders), _keys_by_chunk(files), key=itemgetter(0))
    for _, group in itertools.groupby(streams, key=itemgetter(0)):
        held: set[str] = set()
        others: list[tuple[Path, list[str]]] = []
        for _, path, keys in group:
            if path in held_files:
                others.append((path, keys))
            else:
                held.update(keys)
        held_files -= {path for path, keys in others if not held.issuperset(keys)}
    return [path for path in files if path in held_files]


def _keys_by_chunk(files: Iterable[Path]) -> Iterator[tuple[int, Path, list[str]]]:
    merged: list[Path] = []
    parts: list[Path] = []
    for path in files:
        (parts if chunk_of(path.name) is not None else merged).append(path)
    published = itertools.chain.from_iterable(map(_keys, parts))
    return heapq.merge(*map(_keys, merged), published, key=itemgetter(0))


def _keys(path: Path) -> Iterator[tuple[int, Path, list[str]]]:
    for chunks, keys in read_columns(path, COMPLETIONS, ["chunk", "request_key"]):
        start = 0
        for chunk, group in itertools.groupby(chunks):
            end = start + sum(1 for _ in group)
            yield chunk, path, keys[start:end]
            start = end


def _remove_orphaned_scores(run: RunFolder, versions: Iterable[str]) -> None:
    """Scores of files that were merged, where a kill has left them.

    Those that no other file has are kept: a person may have moved a part away.
    """
    for version in versions:
        folder = run.score_folder(version)
        names = [name for name in file_names(folder) if chunk_of(name) is not None]
        names += [name for name in _abandoned(run, folder) if merged_number(name) is not None]
        parts = {path.name for path in run.completion_parts()}
        orphans: dict[str, set[str]] = {}
        for name in set(names) - parts:
            with contextlib.suppress(FileGoneError):
                columns = read_columns(folder / name, SCORES, ["request_key"])
                orphans[name] = set(itertools.chain.from_iterable(keys for (keys,) in columns))
        for row in run.iter_scores(version) if orphans else ():
            for keys in orphans.values():
                keys.discard(row.request_key)
        for name in (name for name, keys in orphans.items() if not keys):
            with disk_errors("remove", folder / name):
                (folder / name).unlink(missing_ok=True)


def _remove_abandoned(run: RunFolder, versions: Iterable[str]) -> None:
    """Temporary files of compactions that were killed."""
    for folder in (run.path / "completions", *map(run.score_folder, versions)):
        for name in _abandoned(run, folder):
            if name.startswith(".arm-") and name.endswith(".tmp"):
                with disk_errors("remove", folder / name):
                    (folder / name).unlink(missing_ok=True)


def _abandoned(run: RunFolder, folder: Path) -> Iterator[str]:
    """The names in a folder of what nobody has written to for long."""
    now = file_system_now(run.path)
    for name in file_names(folder):
        with contextlib.suppress(FileGoneError), disk_errors("read", folder / name):
            if now - (folder / name).stat().st_mtime > _ABANDONED_S:
                yield name
