"""Completion rows written and read a second, beside pyarrow alone on the same values.

    python benchmarks/store_rows.py [--rows 100000] [--tokens 8] [--part 2000] [--repeats 5]

`rel-batch` makes rows into parts with everything that a part has (checked rows, a temporary file,
fsync, rename), and reads them back as completions. `pyarrow` makes a table of the same values as
dicts (`Table.from_pylist`), writes it with `write_table`, and reads it with `to_pylist`.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from repeated import publish, ratio, repeated

from rel_batch.records import Completion, Instance, PlannedRequest
from rel_batch.store import RunFolder


def completions(number: int, num_tokens: int, part: int) -> list[Completion]:
    """Rows as short answers are: a few tokens and their text."""
    rng = random.Random(0)
    return [
        Completion(
            request_key=f"{n:024x}",
            instance_key=f"{n % 1000:032x}",
            task="REL-A3",
            arm="format",
            sample=n // 1000,
            chunk=n // part,
            seed=None,
            status="ok",
            reply="".join(rng.choices("01234567 CNO()=", k=3 * num_tokens)),
            output_token_ids=tuple(rng.choices(range(262_144), k=num_tokens)),
            finish_reason="stop",
            num_prompt_tokens=314,
            num_output_tokens=num_tokens,
            num_cached_tokens=0,
            constraint_kind="format",
            constraint_held=True,
            error=None,
            latency_s=rng.random(),
        )
        for n in range(number)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--part", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    rows = completions(asked.rows, asked.tokens, asked.part)
    dicts = [dataclasses.asdict(row) for row in rows]
    instances = [
        Instance(
            f"{n:032x}", f"i{n}", "REL-A3", "3x3", "?", {"target": 0}, {"n": 3}, 3, 9, "f.jsonl"
        )
        for n in range(1000)
    ]
    planned = [
        PlannedRequest(
            key=row.request_key,
            instance_key=row.instance_key,
            task=row.task,
            arm=row.arm,
            sample=row.sample,
            seed=None,
            chunk=row.chunk,
            num_prompt_tokens=314,
            max_tokens=16,
            constraint_kind="format",
            constraint_digest="d" * 16,
        )
        for row in rows
    ]
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        parts = [rows[n : n + asked.part] for n in range(0, len(rows), asked.part)]
        run: Any = None

        def write() -> float:
            nonlocal run
            shutil.rmtree(at / "run", ignore_errors=True)
            run = RunFolder.create(at / "run", {"identity": {}}, instances, planned)
            started = time.perf_counter()
            for part in parts:
                run.publish_part(part[0].chunk, part)
            return len(rows) / (time.perf_counter() - started)

        def write_plainly() -> float:
            started = time.perf_counter()
            for n in range(0, len(dicts), asked.part):
                table = pa.Table.from_pylist(dicts[n : n + asked.part])
                pq.write_table(table, at / f"{n}.parquet")
            return len(rows) / (time.perf_counter() - started)

        def read() -> float:
            started = time.perf_counter()
            assert sum(1 for _ in run.iter_completions()) == len(rows)
            return len(rows) / (time.perf_counter() - started)

        def read_plainly() -> float:
            started = time.perf_counter()
            found = sum(len(pq.read_table(f).to_pylist()) for f in at.glob("*.parquet"))
            assert found == len(rows)
            return len(rows) / (time.perf_counter() - started)

        written = repeated({"rel-batch": write, "pyarrow": write_plainly}, repeats=asked.repeats)
        readings = repeated({"rel-batch": read, "pyarrow": read_plainly}, repeats=asked.repeats)
    publish(
        "store_rows",
        {
            "rows": asked.rows,
            "tokens_a_row": asked.tokens,
            "rows_a_part": asked.part,
            "written_rows_per_s": ratio(written, "rel-batch", "pyarrow"),
            "read_rows_per_s": ratio(readings, "rel-batch", "pyarrow"),
        },
    )


if __name__ == "__main__":
    main()
