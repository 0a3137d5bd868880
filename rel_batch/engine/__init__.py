"""One narrow seam between requests and whatever generates: requests in, completions out.

    with load_engine(...) as engine:
        for completion in engine.generate(requests):
            ...

`generate` pulls requests lazily, keeps at most `max_in_flight` of them unfinished, and yields
each completion as it finishes, in no fixed order. A None among the requests means that there is
nothing at the moment: the engine goes on with what it has and asks again. Every request that was
pulled is yielded exactly once, unless the engine dies (EngineDiedError) or the caller closes the
generator.

Surprising: nothing here imports vllm or torch; `engine/vllm.py` does, when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

from rel_batch.constraints import Constraint
from rel_batch.errors import EngineError
from rel_batch.records import Completion, Request, Status


class EngineDiedError(EngineError):
    """The engine is gone, with all that was in it; another one may do better."""


class EngineMemoryError(EngineError):
    """There is too little memory to start the engine as asked.

    `device_is_shared` says that another program holds what is missing.
    """

    device_is_shared = False


class Engine(Protocol):
    """Generates completions. A context manager: `close` leaves no process or thread behind."""

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """Completions as they finish. Raises EngineDiedError when the engine dies."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def finished_completion(
    request: Request,
    *,
    reply: str,
    output_token_ids: tuple[int, ...],
    finish_reason: str,
    num_cached_tokens: int,
    latency_s: float,
    num_output_tokens: int | None = None,
    thought: str = "",
    num_thought_tokens: int = 0,
    ends_in_thought: bool = False,
) -> Completion:
    """The completion of a reply that came back, checked against its own constraint.

    `num_output_tokens` is the number of `output_token_ids` where it is not given.
    `ends_in_thought` says that the text ended in a thought, so that there is no reply to check.
    """
    if ends_in_thought and finish_reason == "length":
        status, held, error = "truncated_thinking", None, None
    else:
        status, held, error = _check(request.constraint, reply, finish_reason)
    return Completion(
        **_identity(request),
        status=status,
        reply=reply,
        output_token_ids=output_token_ids,
        finish_reason=finish_reason,
        num_output_tokens=len(output_token_ids) if num_output_tokens is None else num_output_tokens,
        num_cached_tokens=num_cached_tokens,
        constraint_held=held,
        error=error,
        latency_s=latency_s,
        thought=thought,
        num_thought_tokens=num_thought_tokens,
    )


def failed_completion(request: Request, status: Status, error: str) -> Completion:
    """The completion of a request that has no reply."""
    return Completion(
        **_identity(request),
        status=status,
        reply="",
        output_token_ids=(),
        finish_reason=None,
        num_output_tokens=0,
        num_cached_tokens=0,
        constraint_held=None,
        error=error,
        latency_s=0.0,
    )


def _identity(request: Request) -> dict[str, Any]:
    planned, compiled = request.planned, request.compiled
    return {
        "request_key": planned.key,
        "instance_key": planned.instance_key,
        "task": planned.task,
        "arm": planned.arm,
        "sample": planned.sample,
        "chunk": planned.chunk,
        "seed": planned.seed,
        "num_prompt_tokens": planned.num_prompt_tokens,
        "constraint_kind": planned.constraint_kind,
        "backend": compiled.backend if compiled else None,
        "compile_s": compiled.compile_s if compiled else None,
    }


def _check(
    constraint: Constraint, reply: str, finish_reason: str
) -> tuple[Status, bool | None, str | None]:
    """Nothing in an engine's answer proves that a constraint was applied: look at the text."""
    unconstrained = constraint.expression is None
    if finish_reason == "length":
        if unconstrained or constraint.admits_prefix(reply):
            return "truncated", None, None
        return "constraint_violated", False, "the cut reply is no prefix of an admitted one"
    if finish_reason == "stop":
        if unconstrained:
            return "ok", None, None
        if constraint.matches(reply):
            return "ok", True, None
        return "constraint_violated", False, "the reply does not match its constraint"
    return "engine_error", None, f"the engine ended the reply with {finish_reason!r}"
