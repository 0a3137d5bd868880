"""What a constraint costs the whole engine: tokens a second beside the same requests without one.

    python benchmarks/constraint_throughput.py CHECKPOINT [--backends default guidance xgrammar]
        [--instances 24] [--max-tokens 128] [--repeats 5]

Replies are those of REL-C3, the longest there are, greedy and bounded alike. The kinds are run in
turn by one engine for each backend, on prompts that are in its cache, so that decoding is what is
measured. `molecule` is also compared with `syntax`. A kind of which a reply ends with an error has
no ratio; its error is reported, and the others go on.
"""

# vLLM is only partly typed, and its engine is reached through ours.
# pyright: basic

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from full_set import records_of
from repeated import publish, ratio, repeated
from whole_path import records_file

from rel_batch.config import Backend, validate_config
from rel_batch.engine.vllm import VllmEngine
from rel_batch.launch.prepare import prepare
from rel_batch.plan import Materialiser

KINDS = ("none", "format", "regex", "json", "syntax", "molecule", "formula")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is measured: REL-C3 of `source` under `kinds`, in an engine with these settings."""

    model: dict[str, Any]
    engine: dict[str, Any]
    source: str | None = None
    kinds: tuple[str, ...] = KINDS
    instances: int = 24
    max_tokens: int = 128
    repeats: int = 5
    budget_s: float | None = None


def measure(asked: Asked, backend: Backend, folder: Path) -> dict[str, Any]:
    """The ratios of one backend, in one engine; fewer repeats where the budget ends."""
    config = validate_config(
        {
            "run": "constraints",
            "output_dir": str(folder),
            "model": asked.model,
            "instances": {
                "source": asked.source
                or records_file(folder, list(records_of("REL-C3", asked.instances))),
                "limit": asked.instances,
                "tasks": ["REL-C3"],
            },
            "engine": {**asked.engine, "backend": backend},
            "arms": [
                {
                    "name": kind,
                    "constraint": kind,
                    "max_tokens": asked.max_tokens,
                    # The JSON arm's prompt is longer by a line.
                    "json_instruction": False,
                }
                for kind in asked.kinds
            ],
        },
        "constraints",
    )
    prepared = prepare(config)
    assert prepared.checkpoint is not None
    materialise = Materialiser(
        prepared.instances, config.arms, prepared.renderer, prepared.compile_constraint
    )
    requests = {
        kind: [materialise(r) for r in prepared.plan.requests if r.arm == kind]
        for kind in asked.kinds
    }
    with VllmEngine(
        prepared.checkpoint,
        config.model,
        config.engine,
        max_model_len=prepared.max_model_len,
        seeded=False,
        seed=0,
        log_file=folder / "engine.log",
    ) as engine:
        lengths: dict[str, float] = {}
        failed: dict[str, str] = {}

        def rate(kind: str) -> float:
            started = time.perf_counter()
            done = list(engine.generate(requests[kind]))
            seconds = time.perf_counter() - started
            if wrong := [c for c in done if c.status not in ("ok", "truncated")]:
                failed[kind] = f"{len(wrong)} of {len(done)}: {wrong[0].status}, {wrong[0].error}"
                assert kind != "none", failed[kind]
            tokens = sum(c.num_output_tokens for c in done)
            lengths[kind] = round(tokens / len(done), 1)
            return tokens / seconds

        repeats = asked.repeats
        for again in range(2):  # the first of a kind compiles, and fills the cache
            started = time.perf_counter()
            for kind in asked.kinds:
                rate(kind)
            if again and asked.budget_s is not None:
                round_s = time.perf_counter() - started
                repeats = max(1, min(repeats, int(asked.budget_s / round_s) - 2))
            elif asked.budget_s is None:
                break
        sides = {kind: functools.partial(rate, kind) for kind in asked.kinds if kind not in failed}
        measured = repeated(sides, repeats=repeats)
    worked = [kind for kind in asked.kinds if kind not in failed]
    figures: dict[str, Any] = {
        f"{backend}_{kind}": ratio(measured, kind, "none") for kind in worked if kind != "none"
    }
    figures |= {f"{backend}_{kind}_failed": error for kind, error in failed.items()}
    if {"molecule", "syntax"} <= set(worked):
        figures[f"{backend}_molecule_over_syntax"] = ratio(measured, "molecule", "syntax")
    figures[f"{backend}_tokens_per_reply"] = lengths
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--source", help="records of REL-C3; the bundled ones if left out")
    parser.add_argument("--backends", nargs="+", default=["default", "guidance", "xgrammar"])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--instances", type=int, default=24)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--max-num-seqs", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--name", default="constraint_throughput")
    options = parser.parse_args()
    figures: dict[str, Any] = {
        "checkpoint": Path(options.checkpoint).name,
        "requests_of_each_kind": options.instances,
        "max_num_seqs": options.max_num_seqs,
    }
    asked = Asked(
        model={"path": options.checkpoint},
        engine={"cpu_kv_cache_gib": 2, "engine_args": {"max_num_seqs": options.max_num_seqs}},
        source=options.source,
        kinds=tuple(options.kinds),
        instances=options.instances,
        max_tokens=options.max_tokens,
        repeats=options.repeats,
    )
    for backend in options.backends:
        with tempfile.TemporaryDirectory() as folder:
            figures |= measure(asked, backend, Path(folder))
    publish(options.name, figures)


if __name__ == "__main__":
    main()
