"""The bundled instances: a few of each task, written by the generators with one seed.

    python -m rel_batch.instances.generate.bundled [FOLDER]

rewrites them (by default where they lie, in `rel_batch/instances/bundled`). A test regenerates
them and compares the bytes, so they change only together with a generator.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rel_batch.instances.generate import generate, render_record

SEED = 2604
FOLDER = Path(__file__).parent.parent / "bundled"

# Stem of the file -> what is generated into it. Sizes are chosen to make short prompts.
FILES: Mapping[str, Mapping[str, Any]] = {
    **{f"REL-A{i}_3x3": {"task": f"REL-A{i}", "size": 3, "per_level": 6} for i in range(1, 5)},
    **{f"REL-A{i}_5x5": {"task": f"REL-A{i}", "size": 5, "per_level": 2} for i in range(1, 5)},
    "REL-B1_12taxa": {"task": "REL-B1", "rc": [2, 3, 4], "size": 12, "per_level": 2},
    "REL-C1": {"task": "REL-C1", "size": 5, "per_level": 6},
    "REL-C2": {"task": "REL-C2", "size": 4, "per_level": 6},
    "REL-C3": {"task": "REL-C3", "rc": [2, 3, 4], "size": 8, "per_level": 2},
    "REL-C4": {"task": "REL-C4", "rc": [3, 4, 5], "per_level": 2},
}


def render_files() -> Iterator[tuple[str, str]]:
    """The name and the text of each bundled file."""
    for stem, arguments in FILES.items():
        records = generate(**arguments, seed=SEED)
        yield f"{stem}.jsonl", "".join(render_record(record) + "\n" for record in records)


def publish_files(folder: Path = FOLDER) -> None:
    """Rewrites the bundled files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render_files():
        (folder / name).write_text(text, encoding="ascii", newline="\n")


if __name__ == "__main__":
    publish_files(*map(Path, sys.argv[1:2]))
