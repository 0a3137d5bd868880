"""What four arms cost in prefill where they share a prompt, beside the same arms run one by one.

    python benchmarks/shared_prefill.py CHECKPOINT [--source FILES] [--instances 6] [-o FILE]

REL-B1 is almost all prefill. Both orders run in one engine whose KV cache holds three prompts, so
that nothing stays there by chance, and the cache is emptied between the runs of single arms. What
is counted are the prompt tokens that were not found in the cache (`num_cached_tokens` of each row).
Prints JSON; fails where four arms cost more than 1.25 times one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rel_batch.checkpoint import resolve_checkpoint
from rel_batch.config import ArmConfig, EngineConfig, ModelConfig
from rel_batch.engine.structured_outputs import ConstraintCompiler
from rel_batch.engine.vllm import VllmEngine
from rel_batch.instances import read_instances
from rel_batch.plan import Materialiser, plan_requests
from rel_batch.prompts import PromptRenderer, load_tokenizer
from rel_batch.records import Completion, Instance

MOST = 1.25
BLOCK_TOKENS = 128
PROMPTS_IN_CACHE = 3
ARMS = (
    ArmConfig(name="none", constraint="none", max_tokens=8),
    ArmConfig(name="format", max_tokens=8),
    ArmConfig(name="regex", constraint="regex", max_tokens=8),
    ArmConfig(name="json", constraint="json", max_tokens=16),
)


def computed(completions: Sequence[Completion]) -> int:
    """Prompt tokens that were computed."""
    assert all(c.num_output_tokens for c in completions), "every request has a reply"
    return sum(c.num_prompt_tokens - c.num_cached_tokens for c in completions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--source", default="bundled")
    parser.add_argument("--instances", type=int, default=6)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    found = read_instances(arguments.source, tasks=["REL-B1"], taxa_notation="names")
    instances: list[Instance] = list(islice(found, arguments.instances))
    by_key = {instance.key: instance for instance in instances}
    model = ModelConfig(path=arguments.checkpoint)
    checkpoint = resolve_checkpoint(model)
    tokenizer = load_tokenizer(str(checkpoint.path), revision=None, trust_remote_code=False)
    renderer = PromptRenderer(tokenizer, "auto")
    compiler = ConstraintCompiler("default", tokenizer)

    def planned(arms: Sequence[ArmConfig]) -> list[object]:
        plan = plan_requests(instances, arms, renderer, model_commit="benchmark", seed=0)
        return list(map(Materialiser(by_key, arms, renderer, compiler), plan.requests))

    longest = plan_requests(instances, ARMS, renderer, model_commit="benchmark", seed=0).longest
    blocks = PROMPTS_IN_CACHE * (longest // BLOCK_TOKENS + 1) + 1
    settings = EngineConfig(
        cpu_kv_cache_gib=1,
        engine_args={"block_size": BLOCK_TOKENS, "num_gpu_blocks_override": blocks},
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        VllmEngine(
            checkpoint,
            model,
            settings,
            max_model_len=longest,
            seeded=False,
            seed=0,
            log_file=Path(folder) / "engine.log",
        ) as engine,
    ):

        def run(arms: Sequence[ArmConfig]) -> tuple[int, float, list[Completion]]:
            engine._llm.reset_prefix_cache()  # pyright: ignore[reportPrivateUsage]
            started = time.monotonic()
            done = list(engine.generate(planned(arms)))  # type: ignore[arg-type]
            return computed(done), time.monotonic() - started, done

        run(ARMS[:1])  # the first run of an engine warms it up
        alone = {arm.name: run([arm]) for arm in ARMS}
        together, together_s, done = run(ARMS)
    one = max(tokens for tokens, _, _ in alone.values())
    apart = sum(tokens for tokens, _, _ in alone.values())
    figures = {
        "instances": len(instances),
        "arms": len(ARMS),
        "median_prompt_tokens": statistics.median(c.num_prompt_tokens for c in done),
        "kv_cache_tokens": blocks * BLOCK_TOKENS,
        "one_arm_tokens": one,
        "together_tokens": together,
        "arm_by_arm_tokens": apart,
        "together_ratio": round(together / one, 3),
        "arm_by_arm_ratio": round(apart / one, 3),
        "together_s": round(together_s, 1),
        "arm_by_arm_s": round(sum(seconds for _, seconds, _ in alone.values()), 1),
    }
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    if together > MOST * one:
        raise SystemExit(f"four arms cost {together / one:.2f} times one arm")


if __name__ == "__main__":
    main()
