"""A file is complete or absent, and every failure of the disk is one clear sentence."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rel_batch.errors import StoreError
from rel_batch.store.disk import NameTakenError, disk_errors, file_names, make_folder, writing


def fail_with(number: int, *, on: str | None = None):
    """A function that fails like the kernel does; for names that contain `on`, if given."""

    def failing(*args: object, **_: object) -> None:
        if on is None or any(on in str(arg) for arg in args):
            raise OSError(number, os.strerror(number))

    return failing


def test_a_file_appears_only_when_the_block_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with writing(path, replace=False) as file:
        file.write(b"data")
        assert not path.exists()
        (temporary,) = os.listdir(tmp_path)
        assert temporary.startswith(".")
        assert temporary.endswith(".tmp")
    assert path.read_bytes() == b"data"
    assert os.listdir(tmp_path) == ["a.parquet"]


def test_nothing_appears_when_the_block_raises(tmp_path: Path) -> None:
    def write_half() -> None:
        with writing(tmp_path / "a", replace=False) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert os.listdir(tmp_path) == []


def test_a_taken_name_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("theirs")
    with pytest.raises(NameTakenError), writing(path, replace=False) as file:
        file.write(b"ours")
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["a"]


def test_replacing_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with writing(path, replace=True) as file:
        file.write(b"new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_hard_links_a_name_is_still_taken_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr("rel_batch.store.disk.os.link", fail_with(number))
    path = tmp_path / "a.parquet"
    with writing(path, replace=False) as file:
        file.write(b"first")
    with pytest.raises(NameTakenError), writing(path, replace=False) as file:
        file.write(b"second")
    assert path.read_bytes() == b"first"
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == ["a.parquet"]


def test_a_link_whose_answer_was_lost_counts_as_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_and_lose_the_answer(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr("rel_batch.store.disk.os.link", link_and_lose_the_answer)
    with writing(tmp_path / "a", replace=False) as file:
        file.write(b"ours")
    assert (tmp_path / "a").read_bytes() == b"ours"


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "no space is left on its file system"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EROFS, "its file system is read-only"),
        (errno.EACCES, "permission is denied"),
        (errno.ENOENT, "the file or its folder is not there (any more)"),
        (errno.ENOTDIR, "a part of the path is a file, not a folder"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_failure_of_the_disk_is_one_sentence(number: int, sentence: str) -> None:
    with pytest.raises(StoreError) as raised, disk_errors("write", Path("runs/x")):
        raise OSError(number, os.strerror(number))
    assert raised.value.message == f"cannot write runs/x: {sentence}"


@pytest.mark.parametrize("call", ["os.fsync", "os.link"])
def test_a_failed_write_leaves_no_file_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(f"rel_batch.store.disk.{call}", fail_with(errno.ENOSPC))
    with pytest.raises(StoreError, match="no space"), writing(tmp_path / "a", replace=False) as f:
        f.write(b"data")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_named_and_leaves_no_half_file(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        with (
            pytest.raises(StoreError, match="no space is left"),
            writing(folder / "a", replace=False) as file,
        ):
            file.write(b"x" * 1_000_000)
        assert os.listdir(folder) == []
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_killed_writer_leaves_only_a_hidden_file(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from rel_batch.store.disk import writing\n"
        "with writing(Path(sys.argv[1]), replace=False) as file:\n"
        "    file.write(b'x' * 100_000); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], cwd=root)
    assert done.returncode == -9
    assert all(name.startswith(".") and name.endswith(".tmp") for name in os.listdir(tmp_path))


def test_names_of_an_absent_folder_are_none_but_of_a_removed_run_an_error(tmp_path: Path) -> None:
    assert file_names(tmp_path / "completions") == []
    with pytest.raises(StoreError, match="not there"):
        file_names(tmp_path / "removed" / "completions")


def test_a_folder_is_not_created_inside_a_removed_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not there"):
        make_folder(tmp_path / "removed" / "completions")


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(StoreError, match="is a file, not a folder"):
        make_folder(tmp_path / "run")
