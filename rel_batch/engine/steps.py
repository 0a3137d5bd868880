"""The calls that one request takes: think, reply, measure.

    prompt ─ thought (free, up to its budget) ─ closing ─ reply (constrained) ─ measuring

A thought and its reply are two calls, the second on the first one's cached prefix. So a constraint
begins with the first token of a call, for any backend, model runner and family of checkpoints; the
thought has a bound of its own that is counted in tokens; and a thought that never ends cannot leave
the reply unconstrained.

Surprising: a generator holds all that is known of a running request. It is driven by an engine
(`calls.py`) and knows none.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rel_batch.engine import failed_completion, finished_completion
from rel_batch.engine.calls import Answer, Call
from rel_batch.engine.distortion import measured, option_logprobs
from rel_batch.records import Completion, Request
from rel_batch.thoughts import Thinking, split_thought

Decode = Callable[[Sequence[int]], str]
Steps = Generator[Call, Answer, Completion]


@dataclass(frozen=True, slots=True)
class _Thought:
    """A finished thought.

    `token_ids` is all that stands between prompt and reply, `num_tokens` what the model generated
    of it.
    """

    text: str
    token_ids: tuple[int, ...]
    num_tokens: int
    is_cut: bool
    answer: Answer


def request_steps(request: Request, decode: Decode) -> Steps:
    """The calls of `request`, and its completion.

    `decode` gives the text of token ids, special tokens left out.
    """
    context = request.prompt_token_ids
    thought: _Thought | None = None
    if request.thinking is not None:
        answer = yield _thought_call(request, request.thinking)
        if answer.finish_reason not in ("stop", "length"):
            return failed_completion(
                request, "engine_error", f"the engine ended the thought: {answer.finish_reason!r}"
            )
        thought = _finished(request.thinking, answer, decode)
        if thought.is_cut and request.thinking.on_budget == "truncate":
            return _completion(request, thought, None, decode)
        context += thought.token_ids
    if request.decoding == "likelihood":
        logprobs = yield from option_logprobs(context, request.options)
        best = max(logprobs, key=lambda option: logprobs[option])
        completion = _completion(request, thought, Answer(best, (), "stop"), decode)
        return replace(completion, option_logprobs=logprobs)
    answer = yield _reply_call(request, context, after_thought=thought is not None)
    completion = _completion(request, thought, answer, decode)
    if request.measure_distortion and answer.finish_reason in ("stop", "length"):
        completion = yield from measured(completion, context, answer.token_ids)
        if request.options:
            logprobs = yield from option_logprobs(context, request.options)
            completion = replace(completion, option_logprobs=logprobs)
    return completion


def _thought_call(request: Request, thinking: Thinking) -> Call:
    return Call(
        purpose="thought",
        token_ids=request.prompt_token_ids + thinking.opening,
        max_tokens=thinking.budget,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.planned.seed,
        stop_token_ids=thinking.stop_token_ids,
        stop_text=thinking.stop_text,
    )


def _reply_call(request: Request, context: tuple[int, ...], *, after_thought: bool) -> Call:
    seed = request.planned.seed
    return Call(
        purpose="reply",
        token_ids=context,
        max_tokens=request.planned.max_tokens,
        constraint=None if request.constraint.expression is None else request.constraint,
        temperature=request.temperature,
        top_p=request.top_p,
        # Another seed than the thought's, or both would draw the same random numbers.
        seed=seed + 1 if seed is not None and after_thought else seed,
    )


def _finished(thinking: Thinking, answer: Answer, decode: Decode) -> _Thought:
    """Close a thought, however it ended."""
    ids = answer.token_ids
    closing, is_cut = thinking.forced_closing, False
    if ids and ids[-1] in thinking.stop_token_ids:
        body, kept, closing = ids[:-1], ids, thinking.closing
    elif answer.stopped_by_text:
        body = kept = _ids_of_text(ids, answer.text.rstrip(), decode)
    elif answer.finish_reason == "stop":  # the model ended its turn within its thought
        body = kept = ids[:-1]
    else:
        body = kept = ids
        is_cut = True
    if thinking.mode == "prompted" and not answer.stopped_by_text:
        # What closes it begins with a new paragraph.
        body = kept = _ids_of_text(kept, decode(kept).rstrip(), decode)
    return _Thought(
        text=decode(body),
        token_ids=thinking.opening + kept + closing,
        num_tokens=len(ids),
        is_cut=is_cut,
        answer=answer,
    )


def _ids_of_text(token_ids: tuple[int, ...], text: str, decode: Decode) -> tuple[int, ...]:
    """The longest beginning of `token_ids` that writes no more than `text`."""
    num_ids = bisect.bisect_right(
        range(len(token_ids) + 1), len(text), key=lambda n: len(decode(token_ids[:n]))
    )
    return token_ids[: max(num_ids - 1, 0)]


def _completion(
    request: Request, thought: _Thought | None, answer: Answer | None, decode: Decode
) -> Completion:
    """The completion of a thought and a reply; without a reply the thought has no end."""
    first = thought.answer if thought is not None else answer
    assert first is not None, "a completion is of a thought, a reply or both"
    fields: dict[str, Any] = {
        "thought": thought.text if thought else "",
        "num_thought_tokens": thought.num_tokens if thought else 0,
        "num_cached_tokens": first.num_cached_tokens,
        "latency_s": sum(part.latency_s for part in (thought and thought.answer, answer) if part),
    }
    if answer is None:
        return finished_completion(
            request,
            reply="",
            finish_reason="length",
            output_token_ids=first.token_ids,
            ends_in_thought=True,
            **fields,
        )
    reply, ends_in_thought = answer.text, False
    if request.markers is not None and request.constraint.expression is None:
        # Nothing kept the model from thinking, maybe once more.
        opened = thought is None and request.thought_opened
        split = split_thought(answer.token_ids, request.markers, opened=opened)
        if split.num_thought_tokens:
            own = decode(split.thought).strip()
            fields["thought"] = "\n\n".join(part for part in (fields["thought"], own) if part)
            fields["num_thought_tokens"] += split.num_thought_tokens
            reply, ends_in_thought = decode(split.answer).lstrip(), not split.closed
    between = thought.token_ids if thought else ()
    return finished_completion(
        request,
        reply=reply,
        finish_reason=answer.finish_reason,
        output_token_ids=between + answer.token_ids,
        num_output_tokens=(thought.num_tokens if thought else 0) + len(answer.token_ids),
        ends_in_thought=ends_in_thought,
        **fields,
    )
