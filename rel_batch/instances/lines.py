"""One line of a JSON Lines file at a time, and the REL record that it holds.

Surprising: a file comes from strangers. A line has a greatest length, and what is not plain JSON
(a repeated key, NaN, a number that no float holds, half a surrogate pair, deep nesting) is refused,
since other readers of the same bytes would not agree with us on what it says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from rel_batch.errors import DataError, unknown_name
from rel_batch.tasks.task import FieldError, RawRecord

# The longest released record has 55 kB; 10,000 sequences of 1,000 bases would have 10 MB.
MAX_LINE_BYTES = 32 * 2**20

_BOM = b"\xef\xbb\xbf"


def read_lines(path: Path) -> Iterator[tuple[int, bytes | FieldError]]:
    """The lines that are not blank, numbered from 1; an over-long one as its complaint.

    Raises DataError where the file cannot be read.
    """
    try:
        with path.open("rb", buffering=2**20) as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if number == 1:
                    line = line.removeprefix(_BOM)
                if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    _skip_line(file)
                    yield number, FieldError("line", f"is longer than {MAX_LINE_BYTES:,} bytes")
                elif stripped := line.strip():
                    yield number, stripped
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _skip_line(file: BinaryIO) -> None:
    while rest := file.readline(MAX_LINE_BYTES):
        if rest.endswith(b"\n"):
            return


def parse_record(line: bytes, known_tasks: Iterable[str]) -> RawRecord:
    """The record of a line, its shape checked. Raises FieldError."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text (byte {error.start} of the line: {error.reason})"
        raise FieldError("line", problem) from None
    try:
        value: Any = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise FieldError("line", f"is not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise FieldError("line", "is nested too deep") from None
    except FieldError:
        raise
    except ValueError as error:  # an integer with more digits than Python converts
        raise FieldError("line", f"is not JSON that can be held ({error})") from None
    return shaped(value, known_tasks)


def shaped(value: object, known_tasks: Iterable[str]) -> RawRecord:
    """A record whose fields have the types that they need; other fields are left out.

    Raises FieldError.
    """
    if not isinstance(value, dict):
        raise FieldError("line", f"expected a JSON object, found {_kind(value)}")
    fields = cast(dict[str, Any], value)
    task = _field(fields, "task", str)
    if task not in known_tasks:
        raise FieldError("task", unknown_name("task", task, known_tasks))
    question = _field(fields, "question", str)
    if not question.strip():
        raise FieldError("question", "is empty")
    return RawRecord(
        id=_field(fields, "id", str),
        task=task,
        question=question,
        answer=_field(fields, "answer", dict),
        metadata=_field(fields, "metadata", dict) if "metadata" in fields else {},
    )


def _field(fields: dict[str, Any], name: str, kind: type) -> Any:
    if name not in fields:
        raise FieldError(name, f"is missing; the record has {', '.join(sorted(fields)[:12])}")
    value = fields[name]
    if not isinstance(value, kind):
        wanted = {str: "a string", dict: "an object"}[kind]
        raise FieldError(name, f"expected {wanted}, found {_kind(value)}")
    return value


def _kind(value: object) -> str:
    """What JSON calls a value."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    for kind, name in ((str, "a string"), (dict, "an object"), (list, "an array")):
        if isinstance(value, kind):
            return name
    return "a number"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise FieldError("line", f"has the key {twice!r:.80} twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise FieldError("line", f"holds {name}, which is not JSON")
