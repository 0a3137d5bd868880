"""From JSON Lines files to instances, with `path:line` and the field in every complaint.

A law: within what is read, no two instances have the same key. Upstream ids collide (all 500
algebra ids occur in the 3x3 and in the 9x9 file), so a key is a hash of the content and of the
name of the file.

Surprising: everything about a file is decided before its first instance is handed out, because
the notation of REL-B1's gold can only be proven by the file as a whole (`notation.py`).
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from rel_batch.errors import ConfigError, DataError, nearest, unknown_name
from rel_batch.instances.hub import HUB, fetch_release
from rel_batch.instances.lines import parse_record, read_lines, shaped
from rel_batch.instances.notation import (
    TAXA_NOTATIONS,
    Proven,
    TaxaNotation,
    prove_notation,
    with_taxa_names,
)
from rel_batch.records import Instance
from rel_batch.tasks import TASKS, task_for
from rel_batch.tasks.task import FieldError, RawRecord

BUNDLED = "bundled"
_TAXA_TASK = "REL-B1"


@dataclass(frozen=True)
class InstanceSet(Sequence[Instance]):
    """Instances in the order of their files and lines, and complaints about the lines left out."""

    instances: tuple[Instance, ...]
    skipped: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Instance: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Instance, ...]: ...
    def __getitem__(self, index: int | slice) -> Instance | tuple[Instance, ...]:
        return self.instances[index]

    def __len__(self) -> int:
        return len(self.instances)


def read_instances(
    source: str | Path | Sequence[str | Path] = BUNDLED,
    *,
    taxa_notation: TaxaNotation = "auto",
    skip_bad: bool = False,
    tasks: Collection[str] | None = None,
) -> InstanceSet:
    """Read instances of the unified REL format.

    Args:
        source: "bundled" (the set that comes with the package), "hub" (the released set, fetched
            where it is not cached: `hub.py`), a file, a folder (all its `*.jsonl`, at any depth),
            a glob, or several of these.
        taxa_notation: how REL-B1's gold gives taxa: "names", "positions" (0-based, in the
            string-sorted names), or "auto", which accepts only what a file proves.
        skip_bad: leave out a bad line, with its complaint in `.skipped`, instead of stopping.
        tasks: read only these tasks.

    Raises DataError (what is wrong, at which `path:line`, in which field) and ConfigError (an
    unknown task or notation).
    """
    if taxa_notation not in TAXA_NOTATIONS:
        raise ConfigError(unknown_name("taxa_notation", taxa_notation, TAXA_NOTATIONS))
    wanted = None if tasks is None else {task_for(name).name for name in tasks}
    sources = [source] if isinstance(source, str | Path) else list(source)
    reading = _Reading(skip_bad, wanted)
    for path, is_ours in instance_files(sources):
        reading.read(path, "names" if is_ours else taxa_notation)
    if not reading.instances:
        what = "usable record" if wanted is None else f"record of {', '.join(sorted(wanted))}"
        raise DataError(
            f"no {what} in {', '.join(map(str, sources))}",
            hint=f"{len(reading.skipped)} bad lines were left out" if reading.skipped else None,
        )
    return InstanceSet(tuple(reading.instances), tuple(reading.skipped))


class _Reading:
    """What was read so far."""

    def __init__(self, skip_bad: bool, wanted: Collection[str] | None) -> None:
        self.instances: list[Instance] = []
        self.skipped: list[str] = []
        self._skip_bad = skip_bad
        self._wanted = wanted
        self._places: dict[str, str] = {}

    def read(self, path: Path, notation: TaxaNotation) -> None:
        records = [(line, record) for line, record in _records(path) if self._wants(record)]
        taxa_records = [
            (line, record)
            for line, record in records
            if isinstance(record, RawRecord) and record.task == _TAXA_TASK
        ]
        proven = notation if notation != "auto" else prove_notation(taxa_records, str(path))
        for line, record in records:
            place = f"{path}:{line}"
            try:
                if isinstance(record, FieldError):
                    raise record
                instance = _instance(record, path.name, proven)
                if instance.key in self._places:
                    raise FieldError("line", f"repeats the record of {self._places[instance.key]}")
            except FieldError as error:
                self._complain(f"{place}: {error}")
            else:
                self._places[instance.key] = place
                self.instances.append(instance)

    def _wants(self, record: RawRecord | FieldError) -> bool:
        return self._wanted is None or isinstance(record, FieldError) or record.task in self._wanted

    def _complain(self, complaint: str) -> None:
        if not self._skip_bad:
            raise DataError(
                complaint,
                hint="correct the line, or leave out bad lines with skip_bad (--skip-bad)",
            )
        self.skipped.append(complaint)


def _records(path: Path) -> Iterator[tuple[int, RawRecord | FieldError]]:
    is_empty = True
    for line, content in read_lines(path):
        is_empty = False
        if isinstance(content, FieldError):
            yield line, content
            continue
        try:
            yield line, parse_record(content, TASKS)
        except FieldError as error:
            yield line, error
    if is_empty:
        raise DataError(f"{path} is empty: expected one REL record a line")


def _instance(record: RawRecord, file_name: str, notation: Proven) -> Instance:
    if record.task == _TAXA_TASK:
        record = with_taxa_names(record, notation)
    complexity = TASKS[record.task].describe(record)
    stem = file_name.rpartition(".")[0] or file_name
    said = stem.removeprefix(record.task).lstrip("_") if stem.startswith(record.task) else ""
    return Instance(
        key=_key(record, stem),
        id=record.id,
        task=record.task,
        subset=said or complexity.variant,
        question=record.question,
        answer=record.answer,
        metadata=record.metadata,
        rc=complexity.rc,
        num_entities=complexity.num_entities,
        source_file=file_name,
    )


def _key(record: RawRecord, stem: str) -> str:
    content = [stem, record.id, record.task, record.answer, record.metadata]
    try:
        text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
        # JSON holds no zero byte, so what comes before it is told from what comes after.
        return hashlib.sha256(f"{text}\0{record.question}".encode()).hexdigest()[:16]
    except UnicodeEncodeError:
        raise FieldError("line", "holds half a surrogate pair, which is no character") from None
    except ValueError:
        raise FieldError("line", "holds a number that is too large") from None


def instance_of(record: Mapping[str, Any], source_file: str = "") -> Instance:
    """One record as an instance; REL-B1's taxa are names already (strings or numbers).

    Raises DataError.
    """
    try:
        raw = shaped(dict(record), TASKS)
        return _instance(raw, source_file or str(record.get("source_file", "record")), "names")
    except FieldError as error:
        raise DataError(f"record {record.get('id', '?')!r:.80}: {error}") from error


def instance_files(sources: Iterable[str | Path]) -> Iterator[tuple[Path, bool]]:
    """Each file of the sources once, and whether it comes with the package. Raises DataError."""
    seen: set[str] = set()
    for source in sources:
        if source == HUB:
            release = fetch_release()
            paths = [release.folder / name for name in release.files]
        else:
            paths = _bundled() if source == BUNDLED else _found(source)
        for path in paths:
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                yield path, source == BUNDLED


def _bundled() -> list[Path]:
    return sorted((Path(__file__).parent / BUNDLED).glob("*.jsonl"))


def _found(source: str | Path) -> list[Path]:
    path = Path(source)
    try:
        if path.is_dir():
            paths = sorted(path.rglob("*.jsonl"))
            if not paths:
                raise DataError(f"the folder {path} holds no .jsonl file")
            return paths
        if path.exists():
            return [path]
        paths = sorted(Path(name) for name in glob.glob(str(source), recursive=True))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {source!r}: {error}") from error
    if paths:
        return [found for one in paths for found in (_found(one) if one.is_dir() else [one])]
    raise DataError(f"{source} does not exist", hint=_suggestion(path))


def _suggestion(path: Path) -> str:
    try:
        beside = [other.name for other in path.parent.iterdir()]
    except OSError:
        beside = []
    guess = nearest(path.name, [*beside, BUNDLED, HUB])
    other = f"did you mean {guess}? " if guess else ""
    return f"{other}a source is '{BUNDLED}', '{HUB}', a .jsonl file, a folder, or a glob"
