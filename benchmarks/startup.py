"""What a command costs before it does anything, and how long a full-sized set takes to prepare.

    python benchmarks/startup.py [--checkpoint DIR [--source FILES ...]] [--repeats 5]

Commands are started as programs, in turn with `python -c "import typer"`, the least that any
command line of this kind takes. With a checkpoint the phases before an engine starts are measured
too, once, in this process: on the records in --source, or on a set as large as the released one
(full_set.py).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from full_set import write_full_set
from repeated import publish, ratio, repeated

FORBIDDEN = ("torch", "vllm", "transformers")


def seconds(*command: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def imported_by(*command: str) -> list[str]:
    """Which of the slow packages a command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    return [name for name in FORBIDDEN if name in names]


def phases(checkpoint: str, source: list[str]) -> dict[str, float]:
    """Seconds of each phase of `prepare`, one after another."""
    from rel_batch.checkpoint import resolve_checkpoint
    from rel_batch.config import ArmConfig, ModelConfig
    from rel_batch.engine.structured_outputs import ConstraintCompiler
    from rel_batch.instances import read_instances
    from rel_batch.plan import plan_requests
    from rel_batch.prompts import PromptRenderer, load_tokenizer
    from rel_batch.tasks import task_for

    took: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        took[name] = round(time.perf_counter() - started, 1)
        return result

    instances = list(timed("read", lambda: read_instances(source, taxa_notation="names")))
    found = resolve_checkpoint(ModelConfig(path=checkpoint))
    tokenizer = timed(
        "load_tokenizer",
        lambda: load_tokenizer(str(found.path), revision=None, trust_remote_code=False),
    )
    renderer = PromptRenderer(tokenizer, "auto")
    plan = timed(
        "tokenise_and_plan",
        lambda: plan_requests(
            instances, [ArmConfig(name="format")], renderer, model_commit="", seed=0
        ),
    )
    constraints = {
        c.digest: c for c in (task_for(i.task).constraint(i, "format") for i in instances)
    }
    compiler = ConstraintCompiler("default", tokenizer)
    timed("compile", lambda: [compiler(constraint) for constraint in constraints.values()])
    return {
        **took,
        "instances": len(instances),
        "prompt_tokens": plan.num_prompt_tokens,
        "distinct_constraints": len(constraints),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint")
    parser.add_argument("--source", nargs="+", default=[])
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    commands = {
        "--help": ("-m", "rel_batch", "--help"),
        "report --help": ("-m", "rel_batch", "report", "--help"),
        "typer": ("-c", "import typer"),
    }
    figures: dict[str, Any] = {}
    measured = repeated(
        {name: (lambda c=command: seconds(*c)) for name, command in commands.items()},
        repeats=asked.repeats,
    )
    figures["help_s"] = ratio(measured, "--help", "typer")
    figures["report_help_s"] = ratio(measured, "report --help", "typer")
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "run.yaml"
        environment.write_text(
            f"run: made\noutput_dir: {folder}\ninstances: {{source: bundled}}\n"
            "model: {path: none}\nengine: {kind: fake}\narms: [{name: format}]\n",
            encoding="utf-8",
        )
        run = os.fspath(Path(folder) / "made")
        subprocess.run(
            [sys.executable, "-m", "rel_batch", "run", os.fspath(environment)],
            check=True,
            capture_output=True,
        )
        for command in ("score", "report"):
            figures[f"{command}_imports"] = imported_by("-m", "rel_batch", command, run)
        if asked.checkpoint:
            source = asked.source or [os.fspath(write_full_set(Path(folder) / "full"))]
            figures["prepare_s"] = phases(asked.checkpoint, source)
    publish("startup", figures)


if __name__ == "__main__":
    main()
