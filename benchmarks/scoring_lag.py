"""How long after the last completion of a run its scores are complete.

    python benchmarks/scoring_lag.py [--rates 30 100] [--rows 600] [--repeats 5]

An engine that takes 8 s to start, as few do, and then gives the reference replies of REL-C3, the
slowest to score, at a fixed rate of completions a second; and a whole run around it. A GPU that
writes 13,500 tokens a second finishes 30 such replies in one. Two times are taken from the last
completion on: until every score is published, and until the run is over, with its parts merged.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from full_set import records_of
from repeated import publish
from whole_path import Silent, records_file

from rel_batch.config import validate_config
from rel_batch.engine.fake import FakeEngine, oracle_replies
from rel_batch.launch import joining, local
from rel_batch.launch.background import num_processes
from rel_batch.records import Completion, Request

STARTING_S = 8.0


class Paced(FakeEngine):
    """An engine whose completions come one after another, so many a second."""

    rate: float

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        started = time.monotonic()
        for number, completion in enumerate(super().generate(requests), start=1):
            time.sleep(max(0.0, started + number / self.rate - time.monotonic()))
            yield completion


class Watch(Silent):
    """Notes when the last completion came."""

    last = 0.0

    def completed(self, completion: object) -> None:
        del completion
        self.last = time.monotonic()


def one_run(rate: float, source: str) -> tuple[float, float]:
    """Seconds from the last completion until the scores are there, and until the end."""
    with tempfile.TemporaryDirectory() as folder:
        config = validate_config(
            {
                "run": "lag",
                "output_dir": folder,
                "instances": {"source": source},
                "engine": {"kind": "fake"},
                "model": {"path": "none"},
                "arms": [{"name": "none", "constraint": "none", "max_tokens": 16_384}],
            },
            "lag",
        )

        def load(setup: Any, *_: object) -> Paced:
            time.sleep(STARTING_S)
            engine = Paced(oracle_replies(setup.instances))
            engine.rate = rate
            return engine

        watch, scored = Watch(), 0.0
        load_engine, score_run = joining.load_engine, local.score_run

        def and_note(*arguments: Any, **options: Any) -> Any:
            nonlocal scored
            tally = score_run(*arguments, **options)
            scored = time.monotonic()
            return tally

        joining.load_engine, local.score_run = load, and_note
        try:
            local.run_locally(config, watch, workers=1)
        finally:
            joining.load_engine, local.score_run = load_engine, score_run
        return scored - watch.last, time.monotonic() - watch.last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=[30.0, 100.0])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    figures: dict[str, Any] = {"processes": num_processes(), "rows": asked.rows}
    with tempfile.TemporaryDirectory() as folder:
        source = records_file(Path(folder), list(records_of("REL-C3", asked.rows)))
        for rate in asked.rates:
            runs = [one_run(rate, source) for _ in range(asked.repeats)]
            for index, name in enumerate(("scores_after_s", "end_after_s")):
                values = [run[index] for run in runs]
                figures[f"{name}_at_{rate:g}_a_second"] = {
                    "median": round(statistics.median(values), 2),
                    "lowest": round(min(values), 2),
                    "highest": round(max(values), 2),
                }
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    figures["scoring_process_peak_mib"] = round(most / 1024)
    publish("scoring_lag", figures)


if __name__ == "__main__":
    main()
