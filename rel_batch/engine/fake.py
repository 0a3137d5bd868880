"""An engine without a model: for dry runs, tests and fault injection.

    FakeEngine(lambda request: FakeReply("<Yes>"))

`oracle_replies` gives reference replies (a whole run scores 1.0), `mute_replies` gives nothing
(a whole run scores 0.0), `scripted_replies` reads replies from a JSON Lines file. Thoughts and
replies are cut at their bounds with one token per UTF-8 byte. What it says is what it finds likely:
each of its bytes has a probability of 0.9. Surprising: constraints are checked here and not
enforced, so that a script can show what a violated constraint looks like.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from rel_batch.engine import EngineDiedError
from rel_batch.engine.calls import Answer, Call, TokenScore
from rel_batch.engine.steps import request_steps
from rel_batch.errors import ConfigError, DataError
from rel_batch.records import Completion, Instance, Request
from rel_batch.tasks import task_for


@dataclass(frozen=True, slots=True)
class FakeReply:
    """What the fake model says; `finish_reason` None is "stop", or "length" where it is cut.

    `thought` is what it thinks first, where it is asked to; `dies` ends the engine instead.
    """

    text: str
    finish_reason: str | None = None
    delay_s: float = 0.0
    thought: str = ""
    dies: bool = False


Replies = Callable[[Request], FakeReply]


class FakeEngine:
    """Replies at once, one request at a time."""

    def __init__(self, replies: Replies, on_death: Callable[[], None] | None = None) -> None:
        """`on_death` is called when a reply ends the engine."""
        self._replies = replies
        self._on_death = on_death

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        for request in requests:
            if request is None:
                continue
            reply = self._replies(request)
            if reply.dies:
                if self._on_death is not None:
                    self._on_death()
                raise EngineDiedError("the fake engine died, as its script says")
            steps = request_steps(request, _decode)
            call = next(steps)
            while True:
                started = time.monotonic()
                if reply.delay_s and call.purpose == "reply":
                    time.sleep(reply.delay_s)
                answer = _ANSWERS[call.purpose](call, reply)
                answer = dataclasses.replace(answer, latency_s=time.monotonic() - started)
                try:
                    call = steps.send(answer)
                except StopIteration as end:
                    spaces = sum(
                        byte in b" \t\r\n\v\f"
                        for byte in end.value.reply.encode("utf-8", "surrogatepass")
                    )
                    yield dataclasses.replace(end.value, num_whitespace_tokens=spaces)
                    break

    def close(self) -> None:
        """Nothing to leave behind."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _thought(call: Call, reply: FakeReply) -> Answer:
    encoded = _encode(reply.thought)
    if len(encoded) > call.max_tokens:
        kept = encoded[: call.max_tokens]
        return Answer(_decode(kept), tuple(kept), "length")
    end = tuple(_encode(call.stop_text)) if call.stop_text else (*call.stop_token_ids, _END)[:1]
    return Answer(
        reply.thought, (*encoded, *end), "stop", stopped_by_text=call.stop_text is not None
    )


def _reply(call: Call, reply: FakeReply) -> Answer:
    encoded = _encode(reply.text)
    cut = len(encoded) > call.max_tokens
    kept = encoded[: call.max_tokens]
    text = _decode(kept) if cut else reply.text
    return Answer(text, tuple(kept), reply.finish_reason or ("length" if cut else "stop"))


def _option_logprobs(call: Call, reply: FakeReply) -> Answer:
    """0.9 for the byte that goes on as the reply does, and the rest for the others."""
    encoded = _encode(reply.text)
    # The options' common beginning that the call asks about ends its token ids.
    said = next(
        (
            encoded[length]
            for length in range(min(len(encoded) - 1, len(call.token_ids)), -1, -1)
            if encoded and tuple(encoded[:length]) == call.token_ids[len(call.token_ids) - length :]
        ),
        None,
    )
    others = [token for token in call.candidates if token != said]
    logprobs = {token: math.log((1 - _LIKELY) / (len(others) + 1)) for token in others}
    if said in call.candidates:
        logprobs[said] = math.log(_LIKELY)
    return Answer("", (), "stop", candidate_logprobs=logprobs)


def _token_scores(call: Call, reply: FakeReply) -> Answer:
    del reply  # the fake model is never overruled: it says what it likes best
    score = TokenScore(math.log(_LIKELY), 1, math.log(_LIKELY))
    return Answer("", (), "stop", token_scores=(score,) * len(call.token_ids[call.scored_from :]))


_LIKELY = 0.9
_END = 256  # no byte
_ANSWERS: Mapping[str, Callable[[Call, FakeReply], Answer]] = {
    "thought": _thought,
    "reply": _reply,
    "option_logprobs": _option_logprobs,
    "token_scores": _token_scores,
}


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(token_ids: Sequence[int]) -> str:
    return bytes(token for token in token_ids if token < _END).decode("utf-8", "replace")


def oracle_replies(instances: Mapping[str, Instance]) -> Replies:
    """Reference replies, for instances by key."""

    def reply(request: Request) -> FakeReply:
        instance = instances[request.planned.instance_key]
        task = task_for(instance.task)
        return FakeReply(task.reference_reply_for(instance, request.constraint.kind))

    return reply


def mute_replies() -> Replies:
    """Empty replies."""
    return lambda _: FakeReply("")


def scripted_replies(script: Path, instances: Mapping[str, Instance]) -> Replies:
    """Replies from lines of {"instance": key or id, "reply": text, ...}.

    A line may also hold "thought", "finish_reason", "delay_s" and "dies".

    Raises ConfigError if the file cannot be read, DataError for a bad line or, on use, for an
    instance without a line.
    """
    by_name: dict[str, FakeReply] = {}
    try:
        lines = script.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read engine.fake_script {script}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = cast(dict[str, Any], json.loads(line))
            by_name[str(entry["instance"])] = FakeReply(
                str(entry["reply"]),
                entry.get("finish_reason"),
                float(entry.get("delay_s", 0.0)),
                str(entry.get("thought", "")),
                bool(entry.get("dies", False)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{script}:{number}: expected an object with 'instance' and 'reply'"
            ) from error

    def reply(request: Request) -> FakeReply:
        instance = instances[request.planned.instance_key]
        found = by_name.get(instance.key) or by_name.get(instance.id)
        if found is None:
            raise DataError(f"{script} has no reply for instance {instance.key} ({instance.id})")
        return found

    return reply
