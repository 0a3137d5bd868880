"""What a report of many rows costs: processor seconds, memory, and the size of its page.

    python benchmarks/report_rows.py [--rows 100000] [--keep FOLDER]

Makes a run of REL-A3 and REL-C1 under four arms with replies of a few hundred characters,
scores it, and starts `rel-batch report` on it as a program, once for the table and once for the
whole report. Prints JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import sys
import tempfile
from pathlib import Path

from rel_batch.config import ArmConfig
from rel_batch.engine import finished_completion
from rel_batch.instances import read_instances
from rel_batch.plan import Materialiser, compile_nothing, plan_requests
from rel_batch.prompts import ByteTokenizer, PromptRenderer
from rel_batch.records import Completion, Request
from rel_batch.scoring import score_run
from rel_batch.store import RunFolder
from rel_batch.tasks import task_for

TASKS = ("REL-A3", "REL-C1")
ARMS = (
    ArmConfig(name="none", constraint="none"),
    ArmConfig(name="format"),
    ArmConfig(name="json", constraint="json"),
    ArmConfig(name="think", thinking="prompted", thinking_budget=64),
)
WORDS = (
    "so",
    "the",
    "first",
    "row",
    "has",
    "two",
    "panels",
    "that",
    "differ",
    "by",
    "one",
    "hence",
)


def make_run(folder: Path, num_rows: int) -> RunFolder:
    """A scored run of about so many rows: bundled instances, each many times under other keys."""
    bundled = [i for i in read_instances("bundled") if i.task in TASKS]
    instances = [
        dataclasses.replace(
            bundled[n % len(bundled)], key=f"{n:016x}", id=f"{bundled[n % len(bundled)].id}/{n}"
        )
        for n in range(num_rows // len(ARMS))
    ]
    renderer = PromptRenderer(ByteTokenizer(), "auto")
    plan = plan_requests(instances, ARMS, renderer, model_commit="made", seed=0)
    identity = {"arms": [arm.model_dump(mode="json") for arm in ARMS]}
    run = RunFolder.create(folder, {"identity": identity}, instances, plan.requests)
    by_key = {instance.key: instance for instance in instances}
    arms = {arm.name: arm for arm in ARMS}
    chunk: list[Completion] = []
    for request in map(
        Materialiser(by_key, arms.values(), renderer, compile_nothing), plan.requests
    ):
        instance = by_key[request.planned.instance_key]
        reference = task_for(instance.task).reference_reply_for(
            instance, arms[request.planned.arm].constraint
        )
        if chunk and chunk[-1].chunk != request.planned.chunk:
            run.publish_part(chunk[-1].chunk, chunk)
            chunk = []
        chunk.append(_made(request, reference))
    run.publish_part(chunk[-1].chunk, chunk)
    score_run(run)
    return run


def _made(request: Request, reference: str) -> Completion:
    rng = random.Random(request.planned.key)
    said = " ".join(rng.choices(WORDS, k=40))
    reply = reference if rng.random() < 0.5 else "<smiles>CCO</smiles>"
    if request.planned.arm == "none":
        reply = f"{said}\n{reply}"
    return finished_completion(
        request,
        reply=reply,
        finish_reason="stop",
        output_token_ids=tuple(reply.encode()),
        thought=said if request.planned.arm == "think" else "",
        num_cached_tokens=0,
        latency_s=1.0,
        ends_in_thought=False,
    )


def measured(run: Path, *arguments: str) -> tuple[float, float]:
    """Processor seconds and peak MiB of `rel-batch report`."""
    command = [sys.executable, "-m", "rel_batch", "report", str(run), *arguments]
    with open(os.devnull, "wb") as nothing:
        actions = [(os.POSIX_SPAWN_DUP2, nothing.fileno(), 1)]
        child = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
        _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder: Path = arguments.keep or Path(made)
        path = folder / "run"
        if not path.exists():
            make_run(path, arguments.rows)
        rows = RunFolder.open(path).count_planned().total()
        table_s, table_mib = measured(path)
        report_s, report_mib = measured(path, "-o", str(folder / "report"))
        page_mib = (folder / "report" / "report.html").stat().st_size / 2**20
        figures = {
            "rows": rows,
            "table_cpu_s": round(table_s, 1),
            "table_peak_mib": round(table_mib),
            "report_cpu_s": round(report_s, 1),
            "report_peak_mib": round(report_mib),
            "page_mib": round(page_mib, 1),
        }
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
