"""One SLURM for all tests of this folder that need one, and a faked one for the others."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, why_not
from fake_slurm import FakeSlurm
from jobs import Site


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A controller and two nodes, stopped at the end with all that runs on them."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    # Sockets have short names, and other users' programs look in here.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    try:
        with Cluster(folder) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    folder = tmp_path / "fake"
    folder.mkdir()
    found = FakeSlurm(folder)
    monkeypatch.setenv("PATH", f"{found.bin}:{os.environ['PATH']}")
    return found


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(cluster, tmp_path_factory.mktemp("site"))
