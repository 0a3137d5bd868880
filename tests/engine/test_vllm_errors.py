"""What vLLM says when it cannot start, and what a tokenizer says when it cannot decode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rel_batch.constraints import Constraint
from rel_batch.engine import EngineDiedError, EngineMemoryError
from rel_batch.records import PlannedRequest, Request
from rel_batch.thoughts import Thinking

pytest.importorskip("torch", reason="no engine is installed")


@pytest.mark.parametrize(
    ("said", "for_want_of_memory", "device_is_shared"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", True, False),
        ("ValueError: No available memory for the cache blocks. Try increasing", True, False),
        ("RuntimeError: CUDA out of memory occurred when warming up sampler", True, False),
        (
            "ValueError: Free memory on device cuda:0 (3.1/139.8 GiB) on startup is less than "
            "desired GPU memory utilization (0.92, 128.6 GiB).",
            True,
            True,
        ),
        ("RuntimeError: can't allocate memory: you tried to allocate 9 bytes", True, False),
        ("ValueError: The model's max seq len (9) is larger than the KV cache", False, False),
        ("OSError: config.json is not JSON", False, False),
    ],
)
def test_a_start_that_fails_for_want_of_memory_is_told_from_others(
    said: str, for_want_of_memory: bool, device_is_shared: bool
) -> None:
    from rel_batch.engine.vllm import start_error

    error = start_error("vLLM could not start", f"INFO loading\n{said}\n", hint="see the log")
    assert isinstance(error, EngineMemoryError) == for_want_of_memory
    assert getattr(error, "device_is_shared", False) == device_is_shared


def test_a_reply_that_cannot_be_decoded_is_a_row_of_its_own() -> None:
    from rel_batch.engine.steps import request_steps
    from rel_batch.engine.vllm import VllmEngine, _Running

    class Broken:
        def decode(self, *_: object, **__: object) -> str:
            raise OverflowError("out of range integral type conversion attempted")

    engine = object.__new__(VllmEngine)
    engine._tokenizer = Broken()
    request = thinking_request()
    running = _Running(request, request_steps(request, engine._decode))
    running.call = next(running.steps)
    row = engine._go_on(running, output_of((5, 6, 7)), {})
    assert row is not None
    assert row.status == "engine_error"
    assert row.request_key == request.planned.key
    assert "cannot be decoded: out of range" in str(row.error)


class Core:
    """As much of vLLM's engine as `generate` uses: it answers everything at the next step."""

    def __init__(self, refused: str = "", dies_at_step: int = 0) -> None:
        self.refused = refused
        self.dies_at_step = dies_at_step
        self.num_steps = 0
        self.waiting: list[str] = []
        self.aborted: list[str] = []

    def add_request(self, call_id: str, *_: object, **__: object) -> None:
        if call_id.split("/")[0] == self.refused:
            raise ValueError("too long for this model")
        assert call_id not in self.waiting, "an id that is in the engine already"
        self.waiting.append(call_id)

    def step(self) -> list[Any]:
        self.num_steps += 1
        if self.num_steps == self.dies_at_step:
            raise RuntimeError("CUDA error: device-side assert triggered")
        done, self.waiting = self.waiting, []
        return [
            SimpleNamespace(finished=True, request_id=call_id, **vars(output_of((1,))))
            for call_id in done
        ]

    def abort_request(self, call_ids: list[str]) -> None:
        self.aborted += call_ids


def engine_of(core: Core, max_in_flight: int = 2) -> Any:
    from rel_batch.engine.vllm import VllmEngine

    engine = object.__new__(VllmEngine)
    engine._llm = SimpleNamespace(llm_engine=core)
    engine._max_in_flight = max_in_flight
    engine._num_calls = 0
    engine._log_file = Path("engine.log")
    engine._is_whitespace = {1: False}
    engine._params = lambda _: None
    return engine


def test_none_among_the_requests_is_asked_again_and_ends_nothing() -> None:
    source = iter([None, None, plain("a"), None, plain("b"), plain("c"), None, plain("a")])
    rows = list(engine_of(Core()).generate(source))
    assert sorted(row.request_key for row in rows) == ["a", "a", "b", "c"]
    assert {row.status for row in rows} == {"ok"}


def test_a_request_may_be_in_the_engine_twice() -> None:
    rows = list(engine_of(Core()).generate([plain("a"), plain("a")]))
    assert [row.request_key for row in rows] == ["a", "a"]


def test_a_request_that_vllm_refuses_is_a_row_and_the_others_go_on() -> None:
    rows = list(engine_of(Core(refused="b")).generate(map(plain, "abc")))
    assert {row.request_key: row.status for row in rows} == {
        "a": "ok",
        "b": "engine_error",
        "c": "ok",
    }


def test_whatever_a_step_raises_is_the_engines_death() -> None:
    core = Core(dies_at_step=2)
    completions = engine_of(core).generate(map(plain, "abcd"))
    assert [next(completions).request_key, next(completions).request_key] == ["a", "b"]
    with pytest.raises(EngineDiedError, match="device-side assert") as error:
        next(completions)
    assert "engine.log" in str(error.value.hint)
    assert len(core.aborted) == 2


def plain(key: str) -> Request:
    request = thinking_request()
    return replace(request, planned=replace(request.planned, key=key), thinking=None)


def thinking_request() -> Request:
    planned = PlannedRequest(
        key="k",
        instance_key="i",
        task="REL-C1",
        arm="a",
        sample=0,
        seed=None,
        chunk=0,
        num_prompt_tokens=2,
        max_tokens=4,
        constraint_kind="none",
        constraint_digest="",
    )
    thinking = Thinking("prompted", 8, "force_close", (), (), "\n\nAnswer", (), ())
    constraint = Constraint("none")
    return Request(planned, (1, 2), constraint, temperature=0.0, top_p=1.0, thinking=thinking)


def output_of(token_ids: tuple[int, ...]) -> Any:
    """What vLLM gives back for a call."""
    generated = SimpleNamespace(
        text="x", token_ids=token_ids, finish_reason="stop", stop_reason=None
    )
    return SimpleNamespace(outputs=[generated], num_cached_tokens=0)
