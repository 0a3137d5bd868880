"""The table of docs/performance.md for a card and a model of your own.

    python benchmarks/gpu.py MODEL [--minutes 30] [--engine-args '{"max_num_seqs": 256}'] [--quick]

MODEL is a folder, or a Hub id that is cached. Within the stated time, starting engines included
(three times; where one start takes more than a sixth of it the script overruns): a whole run beside
bare `LLM.generate`, at once and in chunks, on decoding (REL-C3) and on prefill (REL-B1, 49 taxa and
300 columns), and what each constraint costs. Where time runs short there are fewer repeats, and the
table says how many there were. Needs the package with its `gpu` extra and nothing from the network.
`--quick` is for a CPU: a few requests of each kind, to see that it works.

Writes benchmarks/results/gpu-MODEL.json and prints the table as Markdown.
"""

# vLLM is only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from constraint_throughput import Asked, measure
from repeated import Ratio, publish
from saturation import UNITS, b1, c3, compare
from whole_path import loaded

# Requests of each kind of work: some seconds of a large GPU, a minute of a small one.
SIZES = {"c3": 256, "b1": 64, "constraints": 256}
QUICK_SIZES = {"c3": 6, "b1": 1, "constraints": 4}
# Shares of the time that is left when each begins.
SHARES = {"c3": 0.3, "b1": 0.4, "constraints": 0.85}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--engine-args", type=json.loads, default={})
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    sizes = QUICK_SIZES if asked.quick else SIZES
    ends = time.monotonic() + 60 * asked.minutes
    model = {"path": asked.model}
    engine = {
        "tensor_parallel_size": asked.tensor_parallel_size,
        "cpu_kv_cache_gib": 2,
        "engine_args": asked.engine_args,
    }
    figures: dict[str, Any] = {"model": asked.model, "device": device(), "engine_args": engine}

    def budget_s(work: str) -> float:
        return max(0.0, ends - time.monotonic()) * SHARES[work]

    for work, made in (("c3", c3), ("b1", b1)):
        with tempfile.TemporaryDirectory() as folder:
            at = Path(folder)
            settings = {**made(sizes[work], at), "model": model, "engine": engine}
            budget = budget_s(work)
            started = time.monotonic()
            with loaded(settings, folder=at) as path:
                left_s = budget - (time.monotonic() - started)
                found = compare(path, UNITS[work], asked.repeats, left_s)
            figures |= {f"{work}_{name}": figure for name, figure in found.items()}
    with tempfile.TemporaryDirectory() as folder:
        figures |= measure(
            Asked(
                model=model,
                engine=engine,
                instances=sizes["constraints"],
                max_tokens=32 if asked.quick else 256,
                repeats=asked.repeats,
                budget_s=budget_s("constraints"),
            ),
            "default",
            Path(folder),
        )
    figures["minutes"] = round(asked.minutes - (ends - time.monotonic()) / 60, 1)
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(asked.model).name)
    publish(f"gpu-{name}", figures)
    print(render(figures))


def device() -> str:
    """What the engine will run on, without touching it."""
    from vllm.platforms import current_platform

    return str(current_platform.get_device_name())


def render(figures: dict[str, Any]) -> str:
    """The ratios as a Markdown table."""
    lines = [
        f"{figures['model']} on {figures['device']}, {figures['minutes']} minutes",
        "",
        "| of | over | ratio | lowest | highest | repeats |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in figures.items():
        if isinstance(found, Ratio):
            lines.append(
                f"| {name} | {found.over} | {found.median:.3f} | {found.lowest:.3f} "
                f"| {found.highest:.3f} | {len(found.figures[found.of])} |"
            )
    for work, unit in UNITS.items():
        rate = figures[f"{work}_LLM.generate"]
        lines += ["", f"{work}: LLM.generate made {rate:,.0f} {unit.replace('_', ' ')}."]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
