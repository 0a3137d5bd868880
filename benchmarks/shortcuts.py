"""What each shortcut scores on fresh instances, and on the released ones where they are there.

    python benchmarks/shortcuts.py [--instances 2000] [--released ../shared/data/rel]

One line a shortcut: the share of correct replies (in percent) by the strict rules. A shortcut
marked with * is the task's rule itself or its opposite; one marked with ! is not, and still
beats chance by more than 3 points.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random

from rel_batch.instances import instance_of, read_instances
from rel_batch.instances.generate import generate
from rel_batch.instances.shortcuts import SHORTCUTS, Shortcut
from rel_batch.records import Instance
from rel_batch.tasks import task_for

# What is guessed at random is right this often, in percent.
CHANCE = {"REL-A": 12.5, "REL-B1": 50.0, "REL-C1": 50.0}
REQUESTS: dict[str, dict[str, int | list[int]]] = {
    "REL-A1": {"size": 3},
    "REL-A2": {"size": 3},
    "REL-A3": {"size": 3},
    "REL-A4": {"size": 3},
    "REL-B1": {"rc": [2], "size": 24},
    "REL-C1": {"size": 10},
    "REL-C2": {"size": 5},
    "REL-C3": {"rc": [5]},
    "REL-C4": {"rc": [5]},
}
# Making these takes seconds each: fewer of them.
SLOW = {"REL-B1": 5, "REL-C2": 10, "REL-C4": 10}


def percent_correct(shortcut: Shortcut, instances: Sequence[Instance]) -> float:
    rng = Random(0)
    right = 0
    for instance in instances:
        task = task_for(instance.task)
        record = {"question": instance.question, "metadata": instance.metadata}
        reply = shortcut.reply(record, rng)
        right += task.score(instance, reply, truncated=False).verdict == "correct"
    return 100 * right / len(instances)


def fresh(task: str, number: int) -> list[Instance]:
    number = max(20, number // SLOW.get(task, 1))
    return [instance_of(r) for r in generate(task, per_level=number, seed=0, **REQUESTS[task])]


def released(task: str, folder: Path) -> list[Instance]:
    files = [path for path in sorted(folder.rglob(f"{task}*.jsonl")) if "_v1" not in str(path)]
    return list(read_instances(files)) if files else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=2_000)
    parser.add_argument("--released", type=Path, default=Path("../shared/data/rel"))
    arguments = parser.parse_args()
    print(f"{'task':8} {'shortcut':36} {'fresh':>8} {'released':>9}")
    for task, shortcuts in SHORTCUTS.items():
        sets = [fresh(task, arguments.instances), released(task, arguments.released)]
        chance = next((value for name, value in CHANCE.items() if task.startswith(name)), 0.0)
        for shortcut in shortcuts:
            shares = [percent_correct(shortcut, found) if found else None for found in sets]
            mark = "*" if shortcut.bears_on_rule else "!" if shares[0] > chance + 3 else ""
            cells = ["-" if share is None else f"{share:.1f}" for share in shares]
            print(f"{task:8} {shortcut.name:36} {cells[0]:>7}{mark:1} {cells[1]:>9}")
        print(f"{'':8} {'instances':36} {len(sets[0]):>7}  {len(sets[1]):>9}\n", flush=True)


if __name__ == "__main__":
    main()
