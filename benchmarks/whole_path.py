"""The path of a run around one engine that stays loaded, beside the bare engine on the same work.

    with loaded(config) as path:
        path.run()          # rel-batch: plan, render, feed, decode, check, publish, score, merge
        path.generate()     # LLM.generate: the same token ids and sampling, all at once
        path.generate(64)   # the same, 64 requests at a time

Each gives what it took and how many tokens were made. No part of either side are starting an engine
and the scorer (which a run starts at the same time) and loading a tokenizer. The prefix cache is
emptied before each.
"""

# vLLM is only partly typed, and its engine is reached through ours.
# pyright: basic, reportPrivateUsage=false

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rel_batch.config import RunConfig, validate_config
from rel_batch.engine.steps import request_steps
from rel_batch.engine.vllm import VllmEngine
from rel_batch.launch import background, joining, local, prepare
from rel_batch.plan import Materialiser
from rel_batch.store import RunFolder


@dataclass(frozen=True, slots=True)
class Took:
    """What one side took, and made."""

    seconds: float
    num_prompt_tokens: int
    num_output_tokens: int

    @property
    def prompt_tokens_per_s(self) -> float:
        return self.num_prompt_tokens / self.seconds

    @property
    def output_tokens_per_s(self) -> float:
        return self.num_output_tokens / self.seconds


class _Kept:
    """An engine that a run may close as often as it likes."""

    def __init__(self, engine: VllmEngine) -> None:
        self.generate = engine.generate

    def close(self) -> None:
        pass

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _KeptPool(ProcessPoolExecutor):
    """A scoring process that a run may end as often as it likes."""

    def __init__(self) -> None:
        super().__init__(
            background.num_processes(),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=background._scoring_process,
        )
        self._asked: list[Future[Any]] = []

    def __call__(self, **_: Any) -> _KeptPool:
        return self

    def submit(self, function: Any, *arguments: Any, **named: Any) -> Future[Any]:
        self._asked.append(super().submit(function, *arguments, **named))
        return self._asked[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        assert wait
        for future in self._asked:
            if not cancel_futures or not future.cancel():
                future.result()
        self._asked.clear()

    def end(self) -> None:
        super().shutdown()


class Silent:
    """Progress that nobody watches."""

    def say(self, message: str) -> None: ...
    def begin(self, total: int, finished: int) -> None: ...
    def completed(self, completion: object) -> None: ...
    def scored(self, tally: object) -> None: ...
    def end(self) -> None: ...


class WholePath:
    """One run's work, for either side."""

    def __init__(self, config: RunConfig, engine: VllmEngine, prepared: prepare.Prepared) -> None:
        self._config = config
        self._engine = engine
        materialise = Materialiser(
            prepared.instances, config.arms, prepared.renderer, prepared.compile_constraint
        )
        calls = [
            next(request_steps(materialise(request), engine._decode))
            for request in prepared.plan.requests
        ]
        self._prompts: list[Any] = [{"prompt_token_ids": list(call.token_ids)} for call in calls]
        self._calls = calls
        self.num_requests = len(calls)

    def run(self) -> Took:
        """The whole path, into a folder that is not there yet."""
        shutil.rmtree(self._config.folder, ignore_errors=True)
        self._engine._llm.reset_prefix_cache()
        started = time.perf_counter()
        outcome = local.run_locally(self._config, Silent(), workers=1)
        seconds = time.perf_counter() - started
        assert not outcome.num_missing
        rows = list(RunFolder.open(self._config.folder).iter_completions())
        assert len(rows) == self.num_requests
        bad = {row.error for row in rows if row.status not in ("ok", "truncated")}
        assert not bad, bad
        return Took(
            seconds,
            sum(row.num_prompt_tokens for row in rows),
            sum(row.num_output_tokens for row in rows),
        )

    def generate(self, chunk: int | None = None) -> Took:
        """`LLM.generate` alone, on all requests at once or on so many at a time."""
        llm = self._engine._llm
        llm.reset_prefix_cache()
        # vLLM changes the parameters that it is given.
        parameters = [self._engine._params(call) for call in self._calls]
        size = chunk or self.num_requests
        outputs: list[Any] = []
        started = time.perf_counter()
        for start in range(0, self.num_requests, size):
            outputs += llm.generate(
                self._prompts[start : start + size],
                parameters[start : start + size],
                use_tqdm=False,
            )
        seconds = time.perf_counter() - started
        return Took(
            seconds,
            sum(len(output.prompt_token_ids or ()) for output in outputs),
            sum(len(output.outputs[0].token_ids) for output in outputs),
        )


@contextlib.contextmanager
def loaded(settings: dict[str, Any], *, folder: Path | None = None) -> Generator[WholePath]:
    """The work of a config (without `run`), with its engine."""
    with contextlib.ExitStack() as stack:
        at = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = validate_config(
            {**settings, "run": "whole_path", "output_dir": str(at / "outputs")}, "whole_path"
        )
        load_tokenizer = functools.cache(prepare.load_tokenizer)
        stack.callback(setattr, prepare, "load_tokenizer", prepare.load_tokenizer)
        prepare.load_tokenizer = load_tokenizer
        prepared = prepare.prepare(config)
        assert prepared.checkpoint is not None
        engine = stack.enter_context(
            VllmEngine(
                prepared.checkpoint,
                config.model,
                config.engine,
                max_model_len=prepared.max_model_len,
                seeded=any(arm.temperature > 0 for arm in config.arms),
                seed=config.seed,
                log_file=at / "engine.log",
            )
        )
        stack.callback(setattr, joining, "load_engine", joining.load_engine)
        joining.load_engine = lambda *_: _Kept(engine)  # type: ignore[assignment]
        stack.callback(setattr, background, "ProcessPoolExecutor", background.ProcessPoolExecutor)
        background.ProcessPoolExecutor = pool = _KeptPool()  # type: ignore[assignment,misc]
        stack.callback(pool.end)
        yield WholePath(config, engine, prepared)


def records_file(folder: Path, records: Sequence[dict[str, Any]]) -> str:
    """A file of records."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return str(path)
