"""A run of a million requests without a model: what it takes to plan, resume, publish, read, merge.

    python benchmarks/scale.py [--rows 1000000] [--json scale.json]
    python benchmarks/scale.py --folder /some/disk --steps plan "publish 20%" resume
    python benchmarks/scale.py --folder /some/disk --steps "publish rest" resume merge

Each step runs in a process of its own, whose time and greatest memory are printed beside the bound
that is promised. Instances are the bundled ones, repeated under other keys; replies are made up,
100 tokens long on average. The steps: `plan` plans and writes the run, `publish` writes 20% of the
rows and then the others (memory must not grow with what is there), `resume` finds what is missing,
`read` gives every row, `watch` looks at the status, `score` and `report` judge and count all rows,
`merge` compacts, and `resume`, `read` and `report` come again with merged files.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rel_batch import read_instances
from rel_batch.config import ArmConfig
from rel_batch.plan import plan_requests
from rel_batch.prompts import ByteTokenizer, PromptRenderer
from rel_batch.records import Completion, Instance, PlannedRequest
from rel_batch.store import RunFolder, compact
from rel_batch.store.chunks import count_finished, read_chunk_index

NUM_INSTANCES = 12_952
ARMS = 4
PART_ROWS = 512
GIB = 1 << 30


def instances() -> list[Instance]:
    """As many as REL has, each with the question of a bundled one."""
    bundled = list(read_instances("bundled"))
    return [
        dataclasses.replace(bundled[n % len(bundled)], key=f"{n:024x}", id=f"copy_{n}")
        for n in range(NUM_INSTANCES)
    ]


def plan(folder: Path, rows: int) -> int:
    samples = -(-rows // (NUM_INSTANCES * ARMS))
    arms = [
        ArmConfig(name=f"arm{n}", constraint="format", temperature=0.5 + n / 10, samples=samples)
        for n in range(ARMS)
    ]
    found = instances()
    renderer = PromptRenderer(ByteTokenizer(), "none")
    planned = plan_requests(found, arms, renderer, model_commit="none", seed=1)
    RunFolder.create(folder, {"identity": {"rows": rows}}, found, planned.requests)
    return len(planned.requests)


def completion(request: PlannedRequest, dice: random.Random) -> Completion:
    num_tokens = min(int(dice.expovariate(1 / 100)) + 1, 2_000)
    return Completion(
        request_key=request.key,
        instance_key=request.instance_key,
        task=request.task,
        arm=request.arm,
        sample=request.sample,
        chunk=request.chunk,
        status="ok",
        reply=f"<{dice.random()}> " * (num_tokens // 8) + "Answer 3",
        output_token_ids=tuple(dice.choices(range(260_000), k=num_tokens)),
        finish_reason="stop",
        num_prompt_tokens=request.num_prompt_tokens,
        num_output_tokens=num_tokens,
        num_cached_tokens=0,
        constraint_kind=request.constraint_kind,
        constraint_held=True,
        seed=request.seed,
        error=None,
        latency_s=dice.random(),
    )


def parts(run: RunFolder) -> Iterator[list[Completion]]:
    dice = random.Random(1)
    rows: list[Completion] = []
    for request in run.iter_requests():
        if rows and (rows[0].chunk != request.chunk or len(rows) == PART_ROWS):
            yield rows
            rows = []
        rows.append(completion(request, dice))
    yield rows


def publish(folder: Path, share: float) -> tuple[int, dict[str, Any]]:
    """Publish the first `share` of the rows, or what is missing after that."""
    run = RunFolder.open(folder)
    num = read_chunk_index(run).num_requests
    there = len(run.finished_keys()) if share == 1.0 else 0
    first = 0
    spent_s = 0.0
    published = 0
    for rows in parts(run):
        first += len(rows)
        if first <= there:
            continue
        if first > share * num:
            break
        started = time.process_time()
        run.publish_part(rows[0].chunk, rows, worker="benchmark")
        spent_s += time.process_time() - started
        published += len(rows)
    return published, {"publish_rows_per_cpu_s": round(published / spent_s)}


def resume(folder: Path) -> int:
    run = RunFolder.open(folder)
    index = read_chunk_index(run)
    finished = count_finished(run)
    return sum(size.num_requests - finished[chunk] for chunk, size in index.sizes.items())


def read(folder: Path) -> int:
    return sum(1 for _ in RunFolder.open(folder).iter_completions())


def watch(folder: Path) -> int:
    from rel_batch.status import Watcher

    return Watcher(RunFolder.open(folder)).look().num_rows


def score(folder: Path) -> int:
    from rel_batch.scoring import score_run

    return score_run(RunFolder.open(folder)).rows


def report(folder: Path) -> int:
    from rel_batch.report import render_table, summarise

    summary = summarise(RunFolder.open(folder))
    render_table(summary, width=100)
    return sum(group.n for group in summary.groups)


def merge(folder: Path) -> tuple[int, dict[str, Any]]:
    done = compact(RunFolder.open(folder))
    return done.num_rows, {"files_before": done.num_before, "files_after": done.num_after}


def _measured(connection: Any, step: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    started, cpu = time.perf_counter(), time.process_time()
    found = step(*arguments)
    num, more = found if isinstance(found, tuple) else (found, {})
    connection.send(
        {
            "n": num,
            "s": round(time.perf_counter() - started, 2),
            "cpu_s": round(time.process_time() - cpu, 2),
            "rows_per_cpu_s": round(num / max(time.process_time() - cpu, 1e-9)),
            "gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 3),
            **more,
        }
    )


def measured(step: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """What a step takes in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_measured, args=(there, step, arguments))
    process.start()
    there.close()
    found = here.recv()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="Where the run is made, or is, and stays.")
    parser.add_argument("--steps", nargs="+", help="Only these, in their order below.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-scores", action="store_true", help="Leave out score and report.")
    options = parser.parse_args()
    top = options.folder or Path(tempfile.mkdtemp())
    folder = top / "run"
    scored = not options.no_scores
    steps: list[tuple[str, Callable[..., Any], tuple[Any, ...], str]] = [
        ("plan", plan, (folder, options.rows), "60 s, 2 GiB"),
        ("publish 20%", publish, (folder, 0.2), "50,000 rows/s"),
        ("resume", resume, (folder,), "10 s"),
        ("publish rest", publish, (folder, 1.0), "no more memory"),
        ("resume", resume, (folder,), "10 s"),
        ("read", read, (folder,), "50,000 rows/s"),
        ("watch", watch, (folder,), ""),
        *([("score", score, (folder,), "2 GiB")] if scored else []),
        *([("report", report, (folder,), "2 GiB")] if scored else []),
        ("merge", merge, (folder,), ""),
        ("resume merged", resume, (folder,), "10 s"),
        ("read merged", read, (folder,), "50,000 rows/s"),
        *([("report merged", report, (folder,), "2 GiB")] if scored else []),
    ]
    results: list[dict[str, Any]] = []
    try:
        for name, step, arguments, bound in steps:
            if options.steps and name not in options.steps:
                continue
            found = measured(step, *arguments)
            results.append({"step": name, "bound": bound, **found})
            more = {k: v for k, v in found.items() if k not in ("n", "s", "cpu_s", "gib")}
            print(f"{name:14}{found['n']:>10,} {found['s']:>8.1f} s {found['cpu_s']:>8.1f} s CPU "
                  f"{found['gib']:>6.2f} GiB  [{bound}] {more}", flush=True)  # fmt: skip
    finally:
        if options.folder is None:
            shutil.rmtree(top)
    if options.json:
        options.json.write_text(json.dumps({"rows": options.rows, "steps": results}, indent=1))


if __name__ == "__main__":
    main()
