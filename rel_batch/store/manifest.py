"""What a run is (`manifest.json`), and whose run a folder is when several ask at once.

A manifest is JSON with a section `identity`: everything that decides what the rows are. Two
commands are the same run exactly when their identities are equal.

A folder is created in three steps: the intent (`.manifest.json.creating`, taken atomically by
one creator), then the data, then the intent takes the name `manifest.json`. So the first
creator decides what the run is before anything is written; one that comes later with the same
identity may finish an interrupted creation, because it writes the same files, and one with
another identity is refused. Surprising: therefore no lock, no owner and no time-out is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from rel_batch.errors import StoreError
from rel_batch.store.disk import (
    NameTakenError,
    disk_errors,
    file_names,
    sync_folder,
    take_name,
    writing,
)

MANIFEST = "manifest.json"
INTENT = ".manifest.json.creating"
STORE_VERSION = 1

_ABSENT = "(absent)"
_WIDTH = 36


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a run folder, or None where there is none. Raises StoreError."""
    return _read(folder / MANIFEST)


def take_intent(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Make `manifest` the one that this folder will have, or find that it already is.

    Raises StoreError where the folder belongs to another run or holds something else.
    """
    _refuse_foreign(folder)
    content = {"store_version": STORE_VERSION, **manifest}
    try:
        with writing(folder / INTENT, replace=False) as file:
            file.write(json.dumps(content, indent=2, ensure_ascii=True).encode() + b"\n")
    except NameTakenError:
        # None: the other creator has just finished, and `publish_intent` will see that.
        pending = _read(folder / INTENT)
        if pending is not None:
            check_identity(folder / INTENT, pending, manifest)


def publish_intent(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Make the folder a run, and give the manifest that it has from now on.

    Raises StoreError where another creator with another identity was faster.
    """
    path, intent = folder / MANIFEST, folder / INTENT
    with disk_errors("write", path):
        # The name is taken, never replaced: a slow creator must not undo what a quick one did.
        try:
            take_name(intent, path)
        except NameTakenError:
            pass
        except FileNotFoundError:
            if not path.exists():
                raise
        intent.unlink(missing_ok=True)
        sync_folder(folder)
    published = read_manifest(folder)
    if published is None:
        raise StoreError(f"{path} vanished while the run was being created")
    check_identity(path, published, manifest)
    return published


def check_identity(path: Path, stored: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raise StoreError, with the differing settings in two columns, where two runs differ."""
    # Through JSON, so that a tuple and the list that it was stored as are equal.
    now = json.loads(json.dumps(asked.get("identity", {})))
    differences = list(_differences("", stored.get("identity", {}), now))
    if differences:
        raise StoreError(
            f"{path} is of another run. What differs:\n{render_differences(differences)}",
            hint="Give the new run another folder, or use the settings that are stored. "
            "Nothing was changed.",
        )


def render_differences(differences: list[tuple[str, str, str]]) -> str:
    """(setting, stored, now) as aligned columns.

    >>> print(render_differences([("model.commit", "1a2b", "3c4d")]))
      setting       stored  now
      model.commit  1a2b    3c4d
    """
    rows = [("setting", "stored", "now")]
    rows += [(name, *_clip(stored, now)) for name, stored, now in differences]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows)


def _differences(name: str, stored: Any, now: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(stored, dict) and isinstance(now, dict):
        left, right = cast(dict[str, Any], stored), cast(dict[str, Any], now)
        for key in sorted(left.keys() | right.keys()):
            yield from _differences(
                f"{name}.{key}".lstrip("."), left.get(key, _ABSENT), right.get(key, _ABSENT)
            )
    elif isinstance(stored, list) and isinstance(now, list):
        old, new = cast(list[Any], stored), cast(list[Any], now)
        for index in range(max(len(old), len(new))):
            yield from _differences(
                f"{name}[{index}]",
                old[index] if index < len(old) else _ABSENT,
                new[index] if index < len(new) else _ABSENT,
            )
    # `is` a bool: True and 1 are equal in Python and different in a setting.
    elif stored != now or isinstance(stored, bool) != isinstance(now, bool):
        yield name, _show(stored), _show(now)


def _show(value: Any) -> str:
    return value if value == _ABSENT else json.dumps(value)


def _clip(stored: str, now: str) -> tuple[str, str]:
    """Both values short enough for a column, from shortly before where they start to differ."""
    if max(len(stored), len(now)) <= _WIDTH:
        return stored, now
    same = next((i for i, (a, b) in enumerate(zip(stored, now, strict=False)) if a != b), 0)
    start = max(0, same - _WIDTH // 3)
    return _window(stored, start), _window(now, start)


def _window(text: str, start: int) -> str:
    before = "…" if start else ""
    shown = text[start : start + _WIDTH - 2]
    return f"{before}{shown}{'…' if start + len(shown) < len(text) else ''}"


def _read(path: Path) -> dict[str, Any] | None:
    with disk_errors("read", path):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"{path} is not JSON ({error})",
            hint="rel-batch writes it whole or not at all; restore it from a copy.",
        ) from error
    content = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    version = content.get("store_version")
    if version != STORE_VERSION:
        raise StoreError(
            f"{path} has store version {version!r}; this rel-batch reads {STORE_VERSION}",
            hint="Read the run with the version of rel-batch that wrote it.",
        )
    return content


def _refuse_foreign(folder: Path) -> None:
    """A folder without manifest or intent may hold logs and hidden files, and nothing else."""
    names = set(file_names(folder))
    if names & {MANIFEST, INTENT}:
        return
    foreign = sorted(name for name in names if not name.startswith(".") and name != "logs")
    if foreign:
        shown = ", ".join(foreign[:5]) + (" …" if len(foreign) > 5 else "")
        raise StoreError(
            f"{folder} is not a run folder: it has no {MANIFEST} and holds {shown}",
            hint="Choose a folder that does not exist yet, or an empty one.",
        )
