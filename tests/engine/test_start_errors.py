"""What vLLM says when it cannot start, and what is made of it."""

from __future__ import annotations

import pytest

from rel_batch.engine import EngineMemoryError

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
