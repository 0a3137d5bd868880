"""Putting a file on disk so that it is complete or absent, never half, whatever dies.

    with writing(path, replace=False) as file:
        file.write(b"...")

The bytes go into a temporary file beside `path` (its name starts with "." and ends with
".tmp", so that no glob for data finds it), are flushed and fsynced, and only then appear
under their name. Every failure of the disk becomes one clear sentence (`StoreError`).

Surprising: a name is taken with link(2), not rename(2), because rename silently replaces what
another machine has just published. A file system without hard links gets a reservation file
instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from rel_batch.errors import StoreError

_RESUMES = "then start the same command again: it resumes, and what was finished is kept."

# What a person needs to hear about an errno, and what they can do.
_SENTENCES: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("no space is left on its file system", f"Free some space, {_RESUMES}"),
    errno.EDQUOT: ("the disk quota is used up", f"Free some space, {_RESUMES}"),
    errno.EROFS: (
        "its file system is read-only",
        f"Mount it for writing or choose another folder, {_RESUMES}",
    ),
    errno.EACCES: (
        "permission is denied",
        "Use a folder that this user may read and write.",
    ),
    errno.EPERM: ("the operation is not permitted", "Use a folder that this user may write."),
    errno.ENOENT: (
        "the file or its folder is not there (any more)",
        "Check the path. A run folder must not be moved or removed while a run uses it.",
    ),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "Choose another path."),
}
# ESTALE: the file was open on this machine and another one removed it.
_GONE = frozenset({errno.ENOENT, errno.ESTALE})
_NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL, errno.EXDEV}
)


class NameTakenError(Exception):
    """Another process has published a file of this name."""


class FileGoneError(StoreError):
    """A file or folder is not there, or not there any more."""


@contextlib.contextmanager
def disk_errors(action: str, path: Path) -> Generator[None]:
    """Turn an OSError inside the block into a StoreError: "cannot `action` `path`: why".

    Where the file is not there it is a FileGoneError.
    """
    try:
        yield
    except OSError as error:
        sentence, hint = _SENTENCES.get(
            error.errno or 0, (os.strerror(error.errno) if error.errno else str(error), None)
        )
        kind = FileGoneError if error.errno in _GONE else StoreError
        raise kind(f"cannot {action} {path}: {sentence}", hint=hint) from error


@contextlib.contextmanager
def writing(path: Path, *, replace: bool) -> Generator[BinaryIO]:
    """A binary file that appears under `path`, whole and on disk, when the block ends well.

    With `replace`, whatever had the name is replaced. Without it, NameTakenError is raised
    where the name is taken, and the other's file is left alone. When the block raises, nothing
    appears. Raises StoreError for a failure of the disk.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with disk_errors("write", path):
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if replace:
                temporary.replace(path)
            else:
                take_name(temporary, path)
            sync_folder(path.parent)
        finally:
            # A temporary file that cannot be removed must not hide why the write failed.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def make_folder(path: Path, *, parents: bool = False) -> None:
    """Create a folder where it is absent. Raises StoreError.

    Without `parents`, a folder whose own parent has been removed is an error: a run folder
    that somebody removed must not come back as an empty one.
    """
    with disk_errors("create the folder", path):
        try:
            path.mkdir(parents=parents, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None


def file_names(folder: Path) -> list[str]:
    """The names in a folder, in no order; none where it does not exist but its parent does."""
    with disk_errors("list", folder):
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            if not folder.parent.is_dir():
                raise
            return []


def take_name(file: Path, path: Path) -> None:
    """Give a finished file the name `path` as well. Raises NameTakenError and OSError."""
    try:
        os.link(file, path)
    except FileExistsError:
        # NFS may lose the answer to a link that was made, and then says "exists" to the retry.
        if file.stat().st_nlink < 2:
            raise NameTakenError(str(path)) from None
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        _reserve_and_rename(file, path)


def _reserve_and_rename(file: Path, path: Path) -> None:
    # Only who creates the reservation may rename to this name. A reservation left by a process
    # that died costs one number, never a row.
    try:
        path.with_name(f".{path.name}.reserved.tmp").touch(exist_ok=False)
    except FileExistsError:
        raise NameTakenError(str(path)) from None
    if path.exists():
        raise NameTakenError(str(path))
    file.rename(path)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; there the rename itself is durable.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:
            raise
    finally:
        os.close(descriptor)
