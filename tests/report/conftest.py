"""Golden files are compared whole; `REL_BATCH_UPDATE_GOLDEN=1` writes them anew, to be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def matches_golden() -> Callable[[str, str], bool]:
    """Whether a text is the golden file of that name; pytest shows the difference."""

    def compare(name: str, text: str) -> bool:
        path = GOLDEN / name
        if os.environ.get("REL_BATCH_UPDATE_GOLDEN") == "1":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text()
        return True

    return compare
