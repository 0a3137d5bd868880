"""Two workers, one four times slower: how near do claims come to the ideal split of the work?

    python benchmarks/slow_worker.py

The real planner, claims, workers and store; the engines only wait. Each has 16 slots, and a request
keeps one busy for as long as its tokens say, times a random factor that the plan does not know. The
ideal is all of that time over all slots, weighted by their speed. The control gives each worker a
half of the requests beforehand, as static shards do. JSON on standard output.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rel_batch.config import validate_config
from rel_batch.engine import finished_completion
from rel_batch.engine.fake import FakeEngine, FakeReply
from rel_batch.launch.prepare import prepare
from rel_batch.launch.setup import load_setup
from rel_batch.plan import Materialiser, expected_cost, plan_requests
from rel_batch.records import Completion, Request
from rel_batch.store import RunFolder
from rel_batch.store.claims import Claims
from rel_batch.worker import Outfit, Stop, Worker, WorkerSettings

SLOTS = 16


class WaitingEngine(FakeEngine):
    """Keeps each request in one of its slots for a while."""

    def __init__(self, seconds: Callable[[Request], float], slowness: float) -> None:
        super().__init__(lambda _: FakeReply("x"))
        self._seconds = seconds
        self._slowness = slowness

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        source, exhausted = iter(requests), False
        busy: list[tuple[float, int, Request]] = []
        number = 0
        while True:
            while not exhausted and len(busy) < SLOTS:
                request = next(source, "end")
                exhausted = request == "end"
                if not isinstance(request, Request):
                    break
                ends = time.monotonic() + self._seconds(request) * self._slowness
                number += 1
                heapq.heappush(busy, (ends, number, request))
            if busy:
                # Asked again often, as an engine does at each of its steps.
                time.sleep(min(0.02, max(0.0, busy[0][0] - time.monotonic())))
                while busy and busy[0][0] <= time.monotonic():
                    yield _done(heapq.heappop(busy)[2])
            elif exhausted:
                return


def _done(request: Request) -> Completion:
    return finished_completion(
        request,
        reply="x",
        output_token_ids=(1,),
        finish_reason="stop",
        num_cached_tokens=0,
        latency_s=0.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ideal-s", type=float, default=30.0)
    parser.add_argument("--copies", type=int, default=8, help="of the bundled instances")
    parser.add_argument("--slowness", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    slowness = (1.0, arguments.slowness)
    with tempfile.TemporaryDirectory() as name:
        run = _created(Path(name), arguments.copies)
        requests = list(run.iter_requests())
        costs = {
            r.key: expected_cost(r.num_prompt_tokens, r.max_tokens, 0)
            * random.Random(f"{arguments.seed}/{r.key}").lognormvariate(0, 0.5)
            for r in requests
        }
        capacity = SLOTS * sum(1 / each for each in slowness)
        scale = arguments.ideal_s * capacity / sum(costs.values())

        def seconds(request: Request) -> float:
            return costs[request.planned.key] * scale

        engines = [WaitingEngine(seconds, each) for each in slowness]
        setup = load_setup(run)
        materialise = Materialiser(
            setup.instances, setup.config.arms, setup.renderer, setup.compile_constraint
        )
        order = random.Random(arguments.seed).sample(requests, len(requests))
        shards = [map(materialise, order[number::2]) for number in range(2)]
        static_s = _wall_s(
            [lambda e=e, s=s: list(e.generate(s)) for e, s in zip(engines, shards, strict=True)]
        )

        def work(engine: WaitingEngine) -> None:
            own = Materialiser(
                setup.instances, setup.config.arms, setup.renderer, setup.compile_constraint
            )
            with Claims(run.path, timeout_s=120) as claims:
                Worker(
                    run,
                    setup.missing,
                    claims,
                    Outfit(own, setup.max_model_len, lambda: engine),
                    WorkerSettings(setup.config.store),
                    Stop(),
                ).work()

        claims_s = _wall_s([lambda e=e: work(e) for e in engines])
        assert {row.request_key for row in run.iter_completions()} == set(costs)
    result = {
        "requests": len(requests),
        "chunks": len(setup.index.sizes),
        "slowness": arguments.slowness,
        "ideal_s": round(arguments.ideal_s, 2),
        "claims_s": round(claims_s, 2),
        "static_shards_s": round(static_s, 2),
        "claims_over_ideal": round(claims_s / arguments.ideal_s, 3),
        "static_shards_over_ideal": round(static_s / arguments.ideal_s, 3),
    }
    print(json.dumps(result, indent=2))


def _created(folder: Path, copies: int) -> RunFolder:
    """A run of several copies of the bundled instances, each with a question of its own."""
    settings = {
        "run": "slow",
        "output_dir": str(folder),
        "model": {"path": "none"},
        "engine": {"kind": "fake"},
        "arms": [{"name": "free", "constraint": "none"}],
    }
    prepared = prepare(validate_config(settings, "slow_worker"))
    instances = [
        replace(each, key=f"{each.key}-{number}", question=f"{each.question} ({number})")
        for each in prepared.instances.values()
        for number in range(copies)
    ]
    plan = plan_requests(
        instances, prepared.config.arms, prepared.renderer, model_commit="fake", seed=0
    )
    return RunFolder.create(folder / "slow", prepared.manifest({}), instances, plan.requests)


def _wall_s(works: list[Callable[[], object]]) -> float:
    """Seconds until all have ended, each in a thread of its own."""
    threads = [threading.Thread(target=work) for work in works]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - started


if __name__ == "__main__":
    main()
