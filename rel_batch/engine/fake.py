"""An engine without a model: for dry runs, tests and fault injection.

    FakeEngine(lambda request: FakeReply("<Yes>"))

`oracle_replies` gives reference replies (a whole run scores 1.0), `mute_replies` gives nothing
(a whole run scores 0.0), `scripted_replies` reads replies from a JSON Lines file. Replies are
cut at `max_tokens` with one token per UTF-8 byte. Surprising: constraints are checked here and
not enforced, so that a script can show what a violated constraint looks like.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from rel_batch.engine import finished_completion
from rel_batch.errors import ConfigError, DataError
from rel_batch.records import Completion, Instance, Request
from rel_batch.tasks import task_for


@dataclass(frozen=True, slots=True)
class FakeReply:
    """What the fake model says; `finish_reason` None is "stop", or "length" where it is cut."""

    text: str
    finish_reason: str | None = None
    delay_s: float = 0.0


Replies = Callable[[Request], FakeReply]


class FakeEngine:
    """Replies at once, one request at a time."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        for request in requests:
            started = time.monotonic()
            reply = self._replies(request)
            if reply.delay_s:
                time.sleep(reply.delay_s)
            encoded = reply.text.encode("utf-8", "surrogatepass")
            cut = len(encoded) > request.planned.max_tokens
            kept = encoded[: request.planned.max_tokens] if cut else encoded
            yield finished_completion(
                request,
                reply=kept.decode("utf-8", "replace" if cut else "surrogatepass"),
                output_token_ids=tuple(kept),
                finish_reason=reply.finish_reason or ("length" if cut else "stop"),
                num_cached_tokens=0,
                latency_s=time.monotonic() - started,
            )

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


def oracle_replies(instances: Mapping[str, Instance]) -> Replies:
    """Reference replies, for instances by key."""

    def reply(request: Request) -> FakeReply:
        instance = instances[request.planned.instance_key]
        return FakeReply(task_for(instance.task).reference_reply(instance))

    return reply


def mute_replies() -> Replies:
    """Empty replies."""
    return lambda _: FakeReply("")


def scripted_replies(script: Path, instances: Mapping[str, Instance]) -> Replies:
    """Replies from lines of {"instance": key or id, "reply": text, ...}.

    A line may also hold "finish_reason" and "delay_s".

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
                str(entry["reply"]), entry.get("finish_reason"), float(entry.get("delay_s", 0.0))
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
