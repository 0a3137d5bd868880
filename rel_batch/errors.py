"""Every error that rel-batch raises on purpose, and the exit code each one ends a command with.

An error is for a person: the message says what happened and where (`path:line`, a key, an
id) and what was expected; the hint says what to do next. Anything that is not a
`RelBatchError` is our own bug and ends with exit code 1 and its traceback.

Surprising: exit code 7 is not an error class. It means that a command finished but the run
it leaves is incomplete (`EXIT_INCOMPLETE`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_OK = 0
EXIT_BUG = 1
EXIT_INCOMPLETE = 7
EXIT_INTERRUPTED = 130

# A list of more names than this helps nobody who has been told the nearest one.
_MANY_NAMES = 30


class RelBatchError(Exception):
    """A failure that a user can act on.

    `message` says what happened and where; `hint`, if any, says what to do about it.
    """

    exit_code = EXIT_BUG

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint)


def _rebuild(cls: type[RelBatchError], message: str, hint: str | None) -> RelBatchError:
    return cls(message, hint=hint)


class ConfigError(RelBatchError):
    """The configuration, an option or an argument is not usable."""

    exit_code = 2


class DataError(RelBatchError):
    """An instance file or a record in it is not what it has to be."""

    exit_code = 3


class StoreError(RelBatchError):
    """The run folder cannot be read or written, or belongs to another run."""

    exit_code = 4


class EngineError(RelBatchError):
    """The engine, the model or a constraint cannot be used as asked."""

    exit_code = 5


class LaunchError(RelBatchError):
    """A worker or a job could not be started."""

    exit_code = 6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, or None where none is close.

    >>> nearest("modle", ["model", "arms"])
    'model'
    """
    names = list(known)
    by_folded = {candidate.casefold(): candidate for candidate in names}
    found = difflib.get_close_matches(name.casefold(), list(by_folded), n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence for an unknown key or name, with the nearest known one.

    >>> unknown_name("task", "REL-A9", ["REL-A1"])
    "unknown task 'REL-A9'; did you mean 'REL-A1'? Known: REL-A1"
    """
    names = sorted(known)
    guess = nearest(name, names)
    suggestion = f"; did you mean {guess!r}?" if guess else "."
    if guess and len(names) > _MANY_NAMES:
        return f"unknown {what} {name!r}{suggestion}"
    return f"unknown {what} {name!r}{suggestion} Known: {', '.join(names)}"
