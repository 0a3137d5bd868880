"""Audits whole files: reads them, shares the records out to processes, and gives the rows.

    rows = audit_files(["data/rel"], processes=2)

What only several records together show is found here: ids that collide, questions that are asked
twice, and the notation of a file of REL-B1.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

from rel_batch.engine.process import become_parent, die_with_parent
from rel_batch.errors import ConfigError, DataError, LaunchError
from rel_batch.instances.audit import AuditRow, Findings, audit_record, unreadable
from rel_batch.instances.audit.homoplasy import notation_of
from rel_batch.instances.lines import parse_record, read_lines
from rel_batch.instances.notation import Proven
from rel_batch.instances.read import instance_files
from rel_batch.tasks import TASKS
from rel_batch.tasks.task import FieldError, RawRecord

# Starting a process and loading RDKit in it takes about a second.
_FEW = 100


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a file, and what is known of it before its gold is looked at."""

    file: str
    number: int
    record: RawRecord | FieldError
    notation: Proven
    before: Findings


def audit_files(
    sources: Sequence[str | Path],
    *,
    processes: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[AuditRow]:
    """Audit every record of files, folders or globs, in `processes` processes (all CPUs if None).

    `on_progress` is told records done and records in all. Raises DataError (a file that cannot be
    read) and ConfigError before any record is audited.
    """
    num_processes = len(os.sched_getaffinity(0)) if processes is None else processes
    if num_processes < 1:
        raise ConfigError(f"{num_processes} processes cannot audit anything; use 1 or more")
    lines = _with_repeats([line for path, _ in instance_files(sources) for line in _read(path)])
    if not lines:
        raise DataError(f"no record in {', '.join(map(str, sources))}")
    rows: list[AuditRow] = []
    for row in _audited(lines, num_processes):
        rows.append(row)
        if on_progress is not None:
            on_progress(len(rows), len(lines))
    return rows


def _audited(lines: list[_Line], num_processes: int) -> Iterator[AuditRow]:
    if num_processes == 1 or len(lines) < _FEW:
        yield from map(_audit_line, lines)
        return
    become_parent()
    pool = ProcessPoolExecutor(
        num_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_process,
    )
    try:
        # In small portions: a search for a common motif may take seconds, a matrix takes none.
        yield from pool.map(_audit_line, lines, chunksize=4)
    except BrokenProcessPool as error:
        raise LaunchError(
            "a process of the audit was killed from outside, or ran out of memory",
            hint="run the same command again, with fewer --processes if memory is short",
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _start_process() -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _audit_line(line: _Line) -> AuditRow:
    record = line.record
    if isinstance(record, FieldError):
        found = unreadable(record)
        return AuditRow(line.file, line.number, "", "", found.findings, (), found.detail)
    found = audit_record(record, line.notation)
    return AuditRow(
        line.file,
        line.number,
        record.id,
        record.task,
        (*line.before.findings, *found.findings),
        found.undecided,
        {**line.before.detail, **found.detail},
    )


def _read(path: Path) -> list[_Line]:
    lines: list[tuple[int, RawRecord | FieldError]] = []
    for number, content in read_lines(path):
        try:
            if isinstance(content, FieldError):
                raise content
            lines.append((number, parse_record(content, TASKS)))
        except FieldError as error:
            lines.append((number, error))
    taxa_records = [
        (number, record)
        for number, record in lines
        if isinstance(record, RawRecord) and record.task == "REL-B1"
    ]
    notation, evidence = notation_of(taxa_records, str(path))
    found: list[_Line] = []
    for number, record in lines:
        before = Findings()
        if evidence and isinstance(record, RawRecord) and record.answer.get("taxa"):
            before = Findings(("notation_unproven",), detail={"notation": evidence})
        found.append(_Line(str(path), number, record, notation, before))
    return found


def _with_repeats(lines: list[_Line]) -> list[_Line]:
    """The lines with what is to be said of ids and questions that occur more than once."""
    contents: dict[str, dict[str, str]] = {}
    for line in lines:
        if isinstance(line.record, RawRecord):
            place = f"{line.file}:{line.number}"
            contents.setdefault(line.record.id, {}).setdefault(_digest(line.record), place)
    questions: dict[str, str] = {}
    return [_with_repeat(line, contents, questions) for line in lines]


def _with_repeat(
    line: _Line, contents: dict[str, dict[str, str]], questions: dict[str, str]
) -> _Line:
    record = line.record
    if isinstance(record, FieldError):
        return line
    place = f"{line.file}:{line.number}"
    findings, detail = list(line.before.findings), dict(line.before.detail)
    others = [other for other in contents[record.id].values() if other != place]
    if len(contents[record.id]) > 1:
        findings.append("id_collision")
        detail["same_id"] = others
    first = questions.setdefault(record.task + record.question, place)
    if first != place:
        findings.append("repeated_question")
        detail["same_question"] = first
    return replace(line, before=Findings(tuple(findings), detail=detail))


def _digest(record: RawRecord) -> str:
    content = json.dumps([record.task, record.question, record.answer], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
