"""rel-batch: evaluate open-weight checkpoints on REL (arXiv 2604.12176) in batches.

The public API, stable: `score_reply`, `constraint_for`, `read_instances`. Names are loaded when
first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rel_batch.instances import read_instances
    from rel_batch.judge import constraint_for, score_reply

__version__ = "0.1.0"
__all__ = ["__version__", "constraint_for", "read_instances", "score_reply"]

_HOMES = {
    "read_instances": "rel_batch.instances",
    "constraint_for": "rel_batch.judge",
    "score_reply": "rel_batch.judge",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
