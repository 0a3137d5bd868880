"""What `report -o` and `compare` do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rel_batch.errors import ConfigError
from rel_batch.report.comparison import compare_runs
from rel_batch.report.comparison_table import render_comparisons
from rel_batch.report.evidence import read_evidence
from rel_batch.report.findings import find
from rel_batch.report.publish import publish_report
from rel_batch.store import RunFolder


def write_report(runs: Sequence[RunFolder], folder: Path, baseline: str | None) -> Path:
    """Write the report and give the page's path. Raises RelBatchError."""
    return publish_report(find(read_evidence(runs), baseline=baseline), folder)


def print_comparison(runs: Sequence[RunFolder]) -> None:
    """Print the paired comparison of two runs, or of one run's arms. Raises RelBatchError."""
    evidence = read_evidence(runs, texts=False)
    comparisons = compare_runs(evidence)
    if not comparisons:
        raise ConfigError(
            "there is nothing to compare: no task was scored under two arms",
            hint="Two runs are compared by arms of the same name, one run by its arms.",
        )
    console = Console()
    labels = [arm.label for arm in evidence.arms]
    console.print(render_comparisons(comparisons, labels))
