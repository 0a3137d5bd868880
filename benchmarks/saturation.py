"""Whether the engine is ever kept waiting: a whole run beside bare `LLM.generate`, in one engine.

    python benchmarks/saturation.py CHECKPOINT [--work c3 b1] [--repeats 5] [--instances 48]

Both sides get the same token ids and the same sampling (greedy, replies bounded at different
lengths). `c3` is almost all decoding and is compared in output tokens a second, `b1` is almost all
prefill and is compared in prompt tokens a second. The run is measured from before it is planned to
after its last score, with everything that it writes. A third side asks `LLM.generate` for one chunk
of requests after another, as scripts do: it drains at the end of each and must be slower.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from full_set import records_of
from repeated import publish, ratio, repeated
from whole_path import WholePath, loaded, records_file

LENGTHS = (32, 64, 128, 256)
# The third side cuts its requests into so many chunks.
CHUNKS = 6
UNITS = {"c3": "output_tokens_per_s", "b1": "prompt_tokens_per_s"}


def c3(number: int, folder: Path) -> dict[str, Any]:
    """Isomer sets, each under four bounds on the reply: as uneven as replies are."""
    return {
        "instances": {"source": records_file(folder, list(records_of("REL-C3", number)))},
        "arms": [
            {"name": f"most{length}", "constraint": "none", "max_tokens": length}
            for length in LENGTHS
        ],
    }


def b1(number: int, folder: Path) -> dict[str, Any]:
    """Alignments, with a reply of a few tokens."""
    return {
        "instances": {
            "source": records_file(folder, list(records_of("REL-B1", number))),
            "taxa_notation": "names",
        },
        "arms": [{"name": "none", "constraint": "none", "max_tokens": 8}],
    }


def compare(
    path: WholePath, unit: str, repeats: int, budget_s: float | None = None
) -> dict[str, Any]:
    """The three sides in turn, in tokens of a kind a second; fewer times where the budget ends."""
    path.run()  # an engine's first work warms it up
    one = path.generate()
    if budget_s is not None:
        repeats = max(1, min(repeats, int(budget_s / (3.2 * one.seconds))))
    measured = repeated(
        {
            "rel-batch": lambda: getattr(path.run(), unit),
            "LLM.generate": lambda: getattr(path.generate(), unit),
            "chunked": lambda: getattr(path.generate(-(-path.num_requests // CHUNKS)), unit),
        },
        repeats=repeats,
    )
    return {
        "requests": path.num_requests,
        "prompt_tokens": one.num_prompt_tokens,
        "output_tokens": one.num_output_tokens,
        "unit": unit,
        "LLM.generate": round(statistics.median(measured["LLM.generate"]), 1),
        "rel_batch": ratio(measured, "rel-batch", "LLM.generate"),
        "chunked": ratio(measured, "chunked", "LLM.generate"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--work", nargs="+", default=["c3", "b1"], choices=["c3", "b1"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--instances", type=int, default=48)
    parser.add_argument("--max-num-seqs", type=int, default=32)
    parser.add_argument("--name", default="saturation")
    asked = parser.parse_args()
    figures: dict[str, Any] = {"checkpoint": Path(asked.checkpoint).name}
    for work in asked.work:
        with tempfile.TemporaryDirectory() as folder:
            settings = {
                **(c3 if work == "c3" else b1)(asked.instances, Path(folder)),
                "model": {"path": asked.checkpoint},
                "engine": {
                    "cpu_kv_cache_gib": 2,
                    "engine_args": {"max_num_seqs": asked.max_num_seqs},
                },
            }
            with loaded(settings, folder=Path(folder)) as path:
                found = compare(path, UNITS[work], asked.repeats)
                figures |= {f"{work}_{name}": figure for name, figure in found.items()}
    publish(asked.name, figures)


if __name__ == "__main__":
    main()
