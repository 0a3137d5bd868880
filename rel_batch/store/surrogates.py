"""Lone surrogates, which a model can write and no UTF-8 file can hold.

storable(completion)   # each becomes U+FFFD, and the row's `error` says so
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from rel_batch.records import Completion

_LONE = re.compile("[\ud800-\udfff]")


def storable(completion: Completion) -> Completion:
    """The completion with each lone surrogate replaced by U+FFFD, and a note in `error`."""
    fields: tuple[Literal["reply", "thought", "error"], ...] = ("reply", "thought", "error")
    changes: dict[str, str] = {}
    for name in fields:
        text: str | None = getattr(completion, name)
        if text is not None and not text.isascii() and (clean := _LONE.sub("\ufffd", text)) != text:
            changes[name] = clean
    if not changes:
        return completion
    note = f"lone surrogates in {' and '.join(changes)} were replaced by U+FFFD"
    error = changes.get("error", completion.error)
    changes["error"] = note if error is None else f"{error}; {note}"
    return dataclasses.replace(completion, **changes)
