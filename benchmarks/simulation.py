"""How near to the ideal many workers end, by discrete events: 64 GPUs, 1,024 preemptible tasks.

    python benchmarks/simulation.py [--scenario gpus|array|all] [--samples N] [--json out.json]

Real are the plan (`plan_requests`), the claims (`Claims`, in a folder in memory, by a clock that
the simulation sets) and what a worker does next (`Supply`). Made up are the instances, whose
prompts are as long as REL's were measured to be (Gemma's tokens), the lengths of thoughts and
replies, the engines, and the folder's rows, which are sets of keys in place of Parquet files.

An engine decodes up to `seqs` sequences at once; a step takes `base_ms + seq_ms * sequences`, and a
prompt stops it for `tokens / prefill`. Speeds differ by up to 5% either way. Tasks of the array
start over five minutes, load for a minute, live for an hour on average and come back after two
minutes; half of them are killed without a word, so that their claims have to time out.

The ideal: all work, at full batches, is spread without loss over all engines that are there. The
control: each worker has a fixed share of the instances, which are dealt like cards.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import heapq
import itertools
import json
import math
import os
import random
import shutil
import tempfile
import time as real_time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rel_batch.config import ArmConfig
from rel_batch.plan import plan_requests
from rel_batch.prompts import ByteTokenizer, PromptRenderer
from rel_batch.records import Instance, PlannedRequest, Request
from rel_batch.store.chunks import ChunkSize
from rel_batch.store.claims import Claims
from rel_batch.store.clock import FileClock
from rel_batch.worker import supply as supply_module
from rel_batch.worker.deaths import Deaths
from rel_batch.worker.supply import Supply

# Instances, prompt tokens (median, greatest), reply tokens (median, greatest), max_tokens.
LENGTHS = {
    "REL-A1": (250, (314, 317), (4, 12), 16),
    "REL-A4": (750, (1_397, 1_421), (4, 12), 16),
    "REL-B1": (7_952, (7_750, 7_799), (12, 150), 256),
    "REL-C1": (1_000, (350, 777), (5, 8), 16),
    "REL-C2": (1_016, (949, 2_803), (14, 80), 128),
    "REL-C3": (1_000, (372, 796), (441, 1_501), 2_048),
    "REL-C4": (1_000, (1_472, 2_828), (120, 600), 768),
}
TIMEOUT_S = 120.0
FLUSH_S = 30.0


@dataclass(frozen=True)
class Engine:
    """What an engine can do."""

    seqs: int
    base_ms: float
    seq_ms: float
    prefill: float

    def step_s(self, num_sequences: int) -> float:
        return (self.base_ms + self.seq_ms * num_sequences) / 1e3


@dataclass(frozen=True)
class Scenario:
    """Workers, their engine, and whether they are preempted (`life_s` on average).

    `thought` is the median length of a thought and its bound, in tokens; `seed` decides when
    workers die, and which of several that ask has a chunk.
    """

    workers: int
    engine: Engine
    samples: int
    thought: tuple[int, int]
    start_over_s: float
    load_s: float
    life_s: float = math.inf
    away_s: float = 120.0
    seed: int = 0


SCENARIOS = {
    "gpus": Scenario(64, Engine(32, 8.0, 0.4, 40_000.0), 8, (400, 2_048), 0.0, 60.0),
    "array": Scenario(
        1_024, Engine(4, 8.0, 1.5, 20_000.0), 32, (2_000, 16_384), 300.0, 60.0, life_s=3_600.0
    ),
}


def drawn(dice: random.Random, length: tuple[int, int]) -> int:
    """A length from a lognormal with this median, cut at the greatest."""
    median, most = length
    return min(
        most, max(1, round(dice.lognormvariate(math.log(median), math.log(most / median) / 2.5)))
    )


def planned(scenario: Scenario, seed: int) -> tuple[PlannedRequest, ...]:
    """The plan of a run of two arms, one that answers at once and one that thinks."""
    dice = random.Random(seed)
    instances: list[Instance] = []
    for task, (count, prompt, _, _) in LENGTHS.items():
        for _ in range(count):
            number = f"{len(instances):08d} "
            question = number + "x" * (drawn(dice, prompt) - len(number))
            instances.append(
                Instance(number, number, task, "all", question, {}, {}, 2, 9, "made up")
            )
    bounds: Any = {task: most for task, (_, _, _, most) in LENGTHS.items()}
    common: dict[str, Any] = {"constraint": "none", "max_tokens": bounds}
    common["samples"] = scenario.samples
    thinks: dict[str, Any] = {"thinking": "prompted", "thinking_budget": scenario.thought[1]}
    arms = [
        ArmConfig(name="answer", temperature=1.0, **common),
        ArmConfig(name="think", temperature=1.0, **common, **thinks),
    ]
    renderer = PromptRenderer(ByteTokenizer(), "none")
    return plan_requests(instances, arms, renderer, model_commit="none", seed=seed).requests


def num_tokens(request: PlannedRequest, thought: tuple[int, int]) -> int:
    """What a request generates: always the same for the same request."""
    dice = random.Random(request.key)
    reply = drawn(dice, LENGTHS[request.task][2])
    return reply + (drawn(dice, thought) if request.arm == "think" else 0)


def life_of(scenario: Scenario, number: int) -> list[tuple[float, float, bool]]:
    """When a worker is there, loading included, and whether it then dies without a word."""
    dice = random.Random(scenario.seed * 1_000_000 + number)
    now = dice.uniform(0, scenario.start_over_s)
    lives: list[tuple[float, float, bool]] = []
    while now < 10 * 86_400:
        end = now + (
            math.inf if scenario.life_s == math.inf else dice.expovariate(1 / scenario.life_s)
        )
        lives.append((now, end, dice.random() < 0.5))
        now = end + dice.expovariate(1 / scenario.away_s)
    return lives


def speed_of(number: int) -> float:
    return random.Random(-1 - number).uniform(0.95, 1.05)


# What stands in for the folder and the engine.


class Clock(FileClock):
    """The time, as the claims and the supply see it."""

    def __init__(self) -> None:
        self.now = self.start = real_time.time() + 1e6  # later than whatever the system writes

    def monotonic(self) -> float:
        return self.now

    def touch(self, file: Path) -> float:
        os.utime(file, (self.now, self.now))
        return self.now


class Rows:
    """The rows of a run."""

    def __init__(self, path: Path, requests: tuple[PlannedRequest, ...]) -> None:
        self.path = path
        self.chunks: defaultdict[int, list[PlannedRequest]] = defaultdict(list)
        for request in requests:
            self.chunks[request.chunk].append(request)
        self.finished: defaultdict[int, set[str]] = defaultdict(set)
        self.num_parts: Counter[int] = Counter()
        self.num_left = len(requests)
        self.num_repeated = 0

    def iter_requests(self, chunk: int) -> Iterator[PlannedRequest]:
        return iter(self.chunks[chunk])

    def finished_keys(self, chunk: int) -> set[str]:
        return self.finished[chunk]

    def list_parts(self) -> Any:
        return self

    @property
    def by_chunk(self) -> Counter[int]:
        return self.num_parts

    def of_chunk(self, chunk: int) -> tuple[int, ...]:
        return (self.num_parts[chunk],) if self.num_parts[chunk] else ()

    def publish(self, chunk: int, keys: list[str]) -> None:
        before = len(self.finished[chunk])
        self.finished[chunk].update(keys)
        new = len(self.finished[chunk]) - before
        self.num_left -= new
        self.num_repeated += len(keys) - new
        self.num_parts[chunk] += 1


class Publisher:
    def __init__(self, rows: Rows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._waiting: defaultdict[int, list[str]] = defaultdict(list)
        self._since: dict[int, float] = {}

    def begin(self, chunk: int) -> None:
        pass

    def add(self, chunk: int, key: str) -> None:
        self._waiting[chunk].append(key)
        since = self._since.setdefault(chunk, self._clock.now)
        if self._clock.now - since >= FLUSH_S:
            self.publish(chunk)

    def publish(self, chunk: int) -> None:
        if keys := self._waiting.pop(chunk, None):
            self._rows.publish(chunk, keys)
            self._since.pop(chunk, None)

    def flush(self) -> None:
        for chunk in list(self._waiting):
            self.publish(chunk)

    def drop(self, chunk: int) -> None:
        self._waiting.pop(chunk, None)
        self._since.pop(chunk, None)


class Stop:
    """Nobody asks to stop, and to sleep is to be woken later."""

    def shielded(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def sleep(self, seconds: float) -> None:
        pass


@dataclass(frozen=True)
class Done:
    """As much of a completion as a supply wants."""

    request_key: str
    chunk: int


class Claiming:
    """A worker of rel-batch."""

    def __init__(self, run: Rows, sizes: dict[int, ChunkSize], clock: Clock, name: str) -> None:
        self._publisher = Publisher(run, clock)
        # Each on a machine of its own: that its process is gone is for nobody to see.
        info = {"machine": name}
        self.claims = Claims(run.path, timeout_s=TIMEOUT_S, worker=name, info=info, clock=clock)
        self.claims.sweep()
        todo = {c: s for c, s in sizes.items() if len(run.finished[c]) < s.num_requests}
        stand_ins: Any = (run, todo, self.claims, Deaths(run.path), Stop())
        rest: dict[str, Any] = {
            "materialise": lambda request: Request(request, (), None, 1.0, 1.0),  # type: ignore[arg-type]
            "max_model_len": 1_000_000,
            "on_row": None,
            "on_idle": lambda: None,
            "publisher": self._publisher,
        }
        self._supply = Supply(*stand_ins, **rest)

    def next(self) -> PlannedRequest | None:
        request = next(self._supply, None)
        return None if request is None else request.planned

    def finish(self, request: PlannedRequest) -> None:
        done: Any = Done(request.key, request.chunk)
        if self._supply.accept(done):
            self._publisher.add(request.chunk, request.key)
            self._supply.settle(request.chunk)

    def beat(self) -> float:
        self.claims.beat()
        return self.claims.beat_every_s

    def end(self, *, silently: bool) -> None:
        if not silently:
            self._publisher.flush()
            self.claims.close()


class Sharded:
    """A worker with a fixed share: the control."""

    def __init__(self, rows: Rows, share: list[PlannedRequest]) -> None:
        self._rows = rows
        self._left = iter([r for r in share if r.key not in rows.finished[r.chunk]])

    def next(self) -> PlannedRequest | None:
        return next(self._left, None)

    def finish(self, request: PlannedRequest) -> None:
        self._rows.publish(request.chunk, [request.key])

    def beat(self) -> float:
        return math.inf

    def end(self, *, silently: bool) -> None:
        pass


@dataclass
class Life:
    """An engine at work. `steps` counts those that every sequence in it has been through."""

    worker: Any
    engine: Engine
    thought: tuple[int, int]
    speed: float
    steps: float = 0.0
    at: float = 0.0
    active: list[tuple[float, int, PlannedRequest]] = field(
        default_factory=list[tuple[float, int, PlannedRequest]]
    )
    last_prompt: tuple[str, str] = ("", "")
    polls: bool = False
    looks_at: float = -1.0
    count: Iterator[int] = field(default_factory=itertools.count)

    def advance(self, now: float) -> None:
        if now > self.at:
            if self.active:
                self.steps += (now - self.at) * self.speed / self.engine.step_s(len(self.active))
            self.at = now

    def admit(self, request: PlannedRequest) -> None:
        prompt = request.instance_key, request.arm
        if prompt != self.last_prompt:
            self.last_prompt = prompt
            self.at += request.num_prompt_tokens / self.engine.prefill / self.speed
        ends = self.steps + num_tokens(request, self.thought)
        heapq.heappush(self.active, (ends, next(self.count), request))

    def next_finish(self) -> float | None:
        if not self.active:
            return None
        steps = max(0.0, self.active[0][0] - self.steps)
        return self.at + steps * self.engine.step_s(len(self.active)) / self.speed


def simulate(
    scenario: Scenario, rows: Rows, clock: Clock, make: Any, poll_s: float
) -> tuple[float, float]:
    """Seconds until all but one in a thousand requests have a row, and until every one has."""
    few, nearly_s = rows.num_left // 1_000, math.inf
    events: list[tuple[float, int, str, int, Any]] = []
    order = itertools.count()

    def at(when: float, what: str, number: int, life: Any = None) -> None:
        heapq.heappush(events, (when, next(order), what, number, life))

    lives = [iter(life_of(scenario, number)) for number in range(scenario.workers)]
    silent: dict[int, bool] = {}

    def begin(number: int) -> None:
        start, end, silently = next(lives[number])
        at(start + scenario.load_s, "start", number)
        if end != math.inf:
            at(max(end, start + scenario.load_s), "end", number)
        silent[number] = silently

    for number in range(scenario.workers):
        begin(number)
    alive: dict[int, Life] = {}
    names = itertools.count()

    def feed(number: int, life: Life, now: float) -> None:
        while len(life.active) < scenario.engine.seqs:
            request = life.worker.next()
            if request is None:
                if not life.polls:
                    life.polls = True
                    at(now + poll_s, "poll", number, life)
                break
            life.admit(request)
        finish = life.next_finish()
        if finish is not None and finish != life.looks_at:
            life.looks_at = finish
            at(finish, "finish", number, life)

    while rows.num_left:
        now, _, what, number, life = heapq.heappop(events)
        clock.now = clock.start + now
        if rows.num_left <= few:
            nearly_s = min(nearly_s, now)
        if what == "start":
            worker = make(number, f"w{next(names)}")
            life = Life(worker, scenario.engine, scenario.thought, speed_of(number), at=now)
            alive[number] = life
            at(now + worker.beat(), "beat", number, life)
            feed(number, life, now)
        elif what == "end":
            if number in alive:
                alive.pop(number).worker.end(silently=silent[number])
            begin(number)
        elif alive.get(number) is not life:
            continue
        elif what == "beat":
            at(now + life.worker.beat(), "beat", number, life)
        elif what == "poll":
            life.polls = False
            life.advance(now)
            feed(number, life, now)
        elif (due := life.next_finish()) is not None and due <= now + 1e-9:
            life.advance(now)
            while life.active and life.active[0][0] <= life.steps + 1e-6:
                life.worker.finish(heapq.heappop(life.active)[2])
            feed(number, life, now)
    return min(nearly_s, clock.now - clock.start), clock.now - clock.start


def ideal_s(scenario: Scenario, requests: tuple[PlannedRequest, ...]) -> float:
    """When all work would be done if it were spread over the engines that are there."""
    engine = scenario.engine
    prompts = {(r.instance_key, r.arm): r.num_prompt_tokens for r in requests}
    work_s = sum(prompts.values()) / engine.prefill
    tokens = sum(num_tokens(request, scenario.thought) for request in requests)
    work_s += tokens * engine.step_s(engine.seqs) / engine.seqs
    spans = [
        (start + scenario.load_s, end, speed_of(number))
        for number in range(scenario.workers)
        for start, end, _ in life_of(scenario, number)[:1_000]
        if end > start + scenario.load_s
    ]
    low, high = 0.0, 10 * 86_400.0
    for _ in range(60):
        middle = (low + high) / 2
        done_s = sum(
            max(0.0, min(end, middle) - start) * speed
            for start, end, speed in spans
            if start < middle
        )
        low, high = (middle, high) if done_s < work_s else (low, middle)
    return high


def dealt(requests: tuple[PlannedRequest, ...], workers: int) -> list[list[PlannedRequest]]:
    """A fixed share of the instances for each worker, in the order of the plan."""
    shares: list[list[PlannedRequest]] = [[] for _ in range(workers)]
    places: dict[str, int] = {}
    for request in requests:
        place = places.setdefault(request.instance_key, len(places))
        shares[place % workers].append(request)
    return shares


def measured(name: str, scenario: Scenario) -> dict[str, Any]:
    started = real_time.perf_counter()
    requests = planned(scenario, seed=1)
    sizes: dict[int, ChunkSize] = {}
    ideal = ideal_s(scenario, requests)
    for chunk, group in itertools.groupby(requests, key=lambda request: request.chunk):
        rows = list(group)
        sizes[chunk] = ChunkSize(len(rows), sum(cost_of(row) for row in rows))
    found: dict[str, Any] = {
        "scenario": name,
        "workers": scenario.workers,
        "requests": len(requests),
        "chunks": len(sizes),
        "ideal_s": round(ideal),
    }
    poll_s = max(2.0, scenario.workers / 256)
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for strategy in ("claims", "static"):
        random.seed(scenario.seed)  # workers that find the same chunk free choose at random
        path = Path(tempfile.mkdtemp(dir=in_memory))
        clock = Clock()
        rows = Rows(path, requests)
        module: Any = supply_module
        module.time = clock
        module.count_finished_of = lambda chunk, _, rows=rows: len(rows.finished[chunk])
        shares = dealt(requests, scenario.workers)

        def make(number: int, worker: str, strategy: str = strategy, rows: Rows = rows,
                 clock: Clock = clock, shares: Any = shares) -> Any:  # fmt: skip
            if strategy == "static":
                return Sharded(rows, shares[number])
            return Claiming(rows, sizes, clock, worker)

        try:
            nearly, makespan = simulate(scenario, rows, clock, make, poll_s)
        finally:
            shutil.rmtree(path)
        found[f"{strategy}_s"] = round(makespan)
        found[f"{strategy}_over_ideal"] = round(makespan / ideal, 3)
        found[f"{strategy}_all_but_a_thousandth_over_ideal"] = round(nearly / ideal, 3)
        found[f"{strategy}_repeated"] = rows.num_repeated
        print(
            f"{name}: {scenario.workers} workers, {len(requests):,} requests in {len(sizes):,} "
            f"chunks, {strategy}: {makespan:,.0f} s, {makespan / ideal:.3f} of the ideal "
            f"{ideal:,.0f} s, all but a thousandth at {nearly / ideal:.3f} "
            f"({real_time.perf_counter() - started:.0f} s to simulate)",
            flush=True,
        )
    return found


def cost_of(request: PlannedRequest) -> int:
    from rel_batch.plan import expected_cost

    first = request.num_prompt_tokens if request.sample == 0 else 0
    return expected_cost(first, request.max_tokens, request.num_reserved_tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scenario", choices=[*SCENARIOS, "all"], default="all")
    parser.add_argument("--samples", type=int, help="Of each instance and arm.")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--seed", type=int, default=0, help="Of who chooses what, and who dies.")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name, scenario in SCENARIOS.items():
        if options.scenario in (name, "all"):
            changes = {k: v for k in ("samples", "workers", "seed") if (v := getattr(options, k))}
            results.append(measured(name, dataclasses.replace(scenario, **changes)))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
