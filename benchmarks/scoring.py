"""Replies scored in a second of one core's time, by task, and what one hostile reply can cost.

    python benchmarks/scoring.py [FILE OR FOLDER ...] [--replies 200] [--repeats 5]

Without files on fresh instances. A reply is a reference reply, of the instance or (every other one)
of another instance, and every third has words around it. Each repeat is a process of its own, so
that no canonical form is known before: "cold". The default scorer is measured, as a run uses it:
the strict verdict and the reference evaluator's.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import time
from pathlib import Path

from repeated import publish

from rel_batch.instances import instance_of, read_instances
from rel_batch.judge import score_reply
from rel_batch.records import Instance
from rel_batch.tasks import TASKS, task_for

GROUPS = {
    "A": ("REL-A1", "REL-A2", "REL-A3", "REL-A4"),
    "B1": ("REL-B1",),
    "C1": ("REL-C1",),
    "C2": ("REL-C2",),
    "C3": ("REL-C3",),
    "C4": ("REL-C4",),
}
# Replies per second of one core that a run may count on.
WANTED = {"A": 5_000, "B1": 5_000, "C1": 5_000, "C3": 300, "C4": 50}


def hostile_replies() -> dict[str, tuple[str, str]]:
    """Replies that were made to be slow, each with the task whose scorer reads it."""
    tag = "<smiles>{}</smiles>".format
    fused = "C1CC2CCC3" * 60
    return {
        "a SMILES of 20,000 characters": ("REL-C2", tag("C" * 20_000)),
        "10,000 tags": ("REL-C3", "\n".join(tag("C" * (i % 9 + 1) + "O") for i in range(10_000))),
        "10,000 distinct molecules": (
            "REL-C3",
            "\n".join(
                tag("C" * (i % 60 + 1) + f"[C@H](O){'N' * (i // 60)}") for i in range(10_000)
            ),
        ),
        "a cage of open rings": ("REL-C2", tag(fused)),
        "a motif that matches in countless ways": (
            "REL-C4",
            "<indices>0</indices>\n<motif_0>" + "C(C)(C)" * 60 + "C</motif_0>",
        ),
        "a million brackets": ("REL-C3", "<smiles>" + "[" * 1_000_000),
        "a million words": ("REL-A1", "answer " * 1_000_000),
        "yes and no a hundred thousand times": ("REL-B1", "yes, no, " * 100_000),
        "a thousand open thoughts": ("REL-A3", "<think>" * 1_000),
    }


def _score_all(instances: list[Instance], replies: list[str]) -> float:
    """Replies scored per second of processor time, in a process that has scored none."""
    score_reply(instances[0], "", scorer="upstream")  # imports, once
    start = time.process_time()
    for instance, reply in zip(instances, replies, strict=True):
        score_reply(instance, reply)
        score_reply(instance, reply, scorer="upstream")
    return len(replies) / (time.process_time() - start)


def _score_one(instance: Instance, reply: str) -> float:
    score_reply(instance, "")
    start = time.process_time()
    score_reply(instance, reply)
    score_reply(instance, reply, scorer="upstream")
    return time.process_time() - start


def _fresh(number: int) -> list[Instance]:
    from rel_batch.instances.generate import generate

    return [
        instance_of(record) for task in TASKS for record in generate(task, per_level=number, seed=0)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="*", type=Path)
    parser.add_argument("--replies", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    instances = (
        list(read_instances([str(s) for s in asked.sources], taxa_notation="names", skip_bad=True))
        if asked.sources
        else _fresh(3)
    )
    rng = random.Random(0)
    figures: dict[str, object] = {}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as fresh_process:
        for group, tasks in GROUPS.items():
            known = [instance for instance in instances if instance.task in tasks]
            rng.shuffle(known)
            known = known[: asked.replies]
            replies: list[str] = []
            for index, instance in enumerate(known):
                source = known[(index + index % 2) % len(known)]
                reply = task_for(instance.task).reference_reply(source)
                replies.append(reply if index % 3 else f"Let me see. The answer is:\n{reply}")
            rates = [
                fresh_process.apply(_score_all, (known, replies)) for _ in range(asked.repeats)
            ]
            figures[f"{group}_replies_per_s"] = {
                "median": round(statistics.median(rates)),
                "lowest": round(min(rates)),
                "highest": round(max(rates)),
                "n": len(known),
                "wanted": WANTED.get(group),
            }
        for name, (task, reply) in hostile_replies().items():
            instance = next(instance for instance in instances if instance.task == task)
            took_s = fresh_process.apply(_score_one, (instance, reply))
            figures[name] = {"s": round(took_s, 3), "task": task}
    publish("scoring", figures)


if __name__ == "__main__":
    main()
