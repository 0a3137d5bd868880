"""What the job behind an array does, on a CPU: score, compact, report.

It comes however the array ended, so the run may be incomplete; then the report says so as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rel_batch.config import validate_config
from rel_batch.report.evidence import read_evidence
from rel_batch.report.findings import find
from rel_batch.report.publish import publish_report
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder
from rel_batch.store.chunks import count_finished, read_chunk_index
from rel_batch.store.claims import clear_away_dead
from rel_batch.store.compaction import compact
from rel_batch.store.manifest import MANIFEST


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that was reported; `page` is None where no request has a row."""

    run: RunFolder
    num_missing: int
    page: Path | None


def finish_run(path: Path, say: Callable[[str], None]) -> Finished:
    """Score, compact and report a run. Raises RelBatchError."""
    run = RunFolder.open(path)
    config = validate_config(run.manifest.get("config", {}), str(path / MANIFEST))
    num_finished = count_finished(run).total()
    num_missing = read_chunk_index(run).num_requests - num_finished
    if not num_finished:
        say(f"{path}: no request has a row, so there is nothing to report")
        return Finished(run, num_missing, None)
    clear_away_dead(path, timeout_s=config.store.claim_timeout_s)
    score_run(run, overlap=config.scoring.overlap, audited=config.scoring.audited)
    compacted = compact(run)
    say(f"{num_finished:,} rows in {compacted.num_after} files, {num_missing:,} requests without")
    page = publish_report(find(read_evidence([run]), baseline=None), path / "report")
    return Finished(run, num_missing, page)
