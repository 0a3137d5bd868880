"""Processor time that the audit takes for a record of each task.

    python benchmarks/audit.py [FILE OR FOLDER ...] [--records 20]

Without files on fresh instances, else on the first records of each task in the files.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rel_batch.instances.audit import audit_record, raw_record
from rel_batch.instances.generate import generate
from rel_batch.instances.lines import parse_record, read_lines
from rel_batch.instances.read import instance_files
from rel_batch.tasks import TASKS
from rel_batch.tasks.task import FieldError, RawRecord


def fresh(number: int) -> Iterator[RawRecord]:
    for task in TASKS:
        yield from map(raw_record, generate(task, per_level=number, seed=0))


def stored(sources: list[Path], number: int) -> Iterator[RawRecord]:
    taken = dict.fromkeys(TASKS, 0)
    for path, _ in instance_files(sources):
        for _, line in read_lines(path):
            if not isinstance(line, FieldError):
                record = parse_record(line, TASKS)
                taken[record.task] += 1
                if taken[record.task] <= number:
                    yield record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="*", type=Path)
    parser.add_argument("--records", type=int, default=20)
    arguments = parser.parse_args()
    number: int = arguments.records
    records = list(stored(arguments.sources, number) if arguments.sources else fresh(number))
    print(f"{'task':8} {'records':>8} {'ms a record':>12} {'slowest ms':>11} {'undecided':>10}")
    for task in TASKS:
        times: list[float] = []
        undecided = 0
        for record in islice((one for one in records if one.task == task), number):
            start = time.process_time()
            undecided += bool(audit_record(record).undecided)
            times.append(1000 * (time.process_time() - start))
        if times:
            mean = sum(times) / len(times)
            print(f"{task:8} {len(times):8} {mean:12.1f} {max(times):11.1f} {undecided:10}")


if __name__ == "__main__":
    main()
