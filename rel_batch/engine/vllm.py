"""vLLM offline: requests are added as earlier ones finish, so the batch never drains.

    engine = VllmEngine(checkpoint, settings, max_model_len=2048, log_file=...)

A request may take several calls (`steps.py`). Its later ones go before other requests' first ones,
while what they continue is still in the KV cache.

Surprising: vLLM's engine core is a child process, whose output goes to the run's log, and each
sampling parameter is ours: nothing but the end-of-sequence ids is taken from the checkpoint's
generation config.
"""

# vLLM is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import contextlib
import dataclasses
import logging
import multiprocessing.connection
import re
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeGuard

from rel_batch.checkpoint import Checkpoint
from rel_batch.config import Backend, EngineConfig, ModelConfig
from rel_batch.engine import EngineDiedError, EngineMemoryError, failed_completion
from rel_batch.engine.calls import Answer, Call, TokenScore
from rel_batch.engine.process import output_to
from rel_batch.engine.steps import Steps, request_steps
from rel_batch.engine.vllm_arguments import engine_arguments, prepare_environment
from rel_batch.errors import ConfigError, EngineError
from rel_batch.records import Completion, Request

# Requests added between two steps of the engine: enough to fill a batch, few enough not to stall.
_ADDED_PER_STEP = 64
_SHUTDOWN_S = 30.0


class _UndecodableError(Exception):
    """The tokenizer cannot write what the model has drawn."""


class VllmEngine:
    """One vLLM engine with its child processes."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: ModelConfig,
        settings: EngineConfig,
        *,
        max_model_len: int,
        seeded: bool,
        seed: int,
        log_file: Path,
    ) -> None:
        """Start the engine; `seeded` says that some requests have seeds of their own.

        Raises ConfigError for a bad argument, EngineError if vLLM fails.
        """
        self._max_in_flight = settings.max_in_flight
        self._backend: Backend = settings.backend
        self._log_file = log_file
        self._is_whitespace: dict[int, bool] = {}
        self._num_calls = 0
        log_start = log_file.stat().st_size if log_file.exists() else 0
        prepare_environment(settings)
        try:
            with output_to(log_file):
                from vllm import LLM

                arguments = engine_arguments(
                    checkpoint, model, settings, max_model_len, seeded, seed
                )
                self._llm = LLM(**arguments)
            _wake_when_it_dies(self._llm.llm_engine.engine_core)
            # vLLM sets up its logger while it starts; from here on it stays off the terminal.
            logging.getLogger("vllm").handlers = [logging.FileHandler(log_file)]
            self._tokenizer = self._llm.get_tokenizer()
        except (ConfigError, KeyboardInterrupt):
            raise
        except Exception as error:  # whatever vLLM, torch or a checkpoint's code raise
            raise start_error(
                f"vLLM could not start with {checkpoint.name}: {_first_line(error)}",
                f"{error}\n{_read_end(log_file, log_start)}",
                hint=f"its whole output is in {log_file}",
            ) from error

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """See `Engine.generate`."""
        core = self._llm.llm_engine
        in_flight: dict[str, _Running] = {}
        source = iter(requests)
        exhausted = False
        try:
            while True:
                added = 0
                while not exhausted and added < _ADDED_PER_STEP:
                    if len(in_flight) >= self._max_in_flight:
                        break
                    try:
                        request = next(source)
                    except StopIteration:
                        exhausted = True
                        break
                    if request is None:
                        break
                    running = _Running(request, request_steps(request, self._decode))
                    refusal = self._go_on(running, None, in_flight)
                    if refusal is not None:
                        yield refusal
                        continue
                    added += 1
                if not in_flight:
                    if exhausted:
                        return
                    continue
                with self._deaths_named():
                    outputs = core.step()
                for output in outputs:
                    if output.finished:
                        running = in_flight.pop(output.request_id)
                        done = self._go_on(running, output, in_flight)
                        if done is not None:
                            yield done
        finally:
            if in_flight:
                _abort(core, list(in_flight))

    @contextlib.contextmanager
    def _deaths_named(self) -> Generator[None]:
        """Whatever the engine raises ends it: what it did to other requests is not known."""
        try:
            yield
        except Exception as error:
            raise EngineDiedError(
                f"vLLM's engine died: {_first_line(error)}",
                hint=f"its whole output is in {self._log_file}; finished rows are kept, and the "
                "same command goes on from there",
            ) from error

    def _go_on(
        self, running: _Running, output: Any, in_flight: dict[str, _Running]
    ) -> Completion | None:
        """Make a request's next call, after the `output` of the one before; its completion if
        there is none, or if vLLM refuses the call."""
        try:
            if output is None:
                call = next(running.steps)
            else:
                call = running.steps.send(_answer(running, output))
        except StopIteration as end:
            return self._with_whitespace(end.value)
        except _UndecodableError as error:
            return failed_completion(running.request, "engine_error", str(error))
        running.call = call
        # A request may be in the engine twice, if its chunk was lost and claimed again meanwhile.
        self._num_calls += 1
        call_id = f"{running.request.planned.key}/{self._num_calls}"
        try:
            with self._deaths_named():
                self._llm.llm_engine.add_request(
                    call_id,
                    {"prompt_token_ids": list(call.token_ids)},
                    self._params(call),
                    priority=-1 if running.is_begun else 0,
                )
        except EngineDiedError as error:
            if not _is_refusal(error.__cause__):
                raise
            # vLLM's validation of one request: the others go on.
            return failed_completion(running.request, "engine_error", _first_line(error.__cause__))
        running.is_begun = True
        running.since = time.monotonic()
        in_flight[call_id] = running
        return None

    def _params(self, call: Call) -> Any:
        """vLLM's parameters for a call."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        from rel_batch.engine.structured_outputs import structured_outputs_for

        arguments: dict[str, Any] = {
            "temperature": call.temperature,
            "top_p": call.top_p,
            "max_tokens": call.max_tokens,
            "seed": call.seed,
            "output_kind": RequestOutputKind.FINAL_ONLY,
        }
        if call.purpose == "token_scores":
            # vLLM reads no prefix cache here: it would leave out the cached tokens' scores.
            arguments |= {"prompt_logprobs": 1, "flat_logprobs": True, "detokenize": False}
        elif call.purpose == "option_logprobs":
            arguments |= {"logprob_token_ids": list(call.candidates), "detokenize": False}
        else:
            arguments["stop_token_ids"] = list(call.stop_token_ids)
            arguments["stop"] = [] if call.stop_text is None else [call.stop_text]
            if call.constraint is not None:
                arguments["structured_outputs"] = structured_outputs_for(
                    call.constraint, self._backend
                )
        return SamplingParams(**arguments)

    def _decode(self, token_ids: Sequence[int]) -> str:
        try:
            return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))
        except Exception as error:  # whatever a tokenizer, or a checkpoint's own code, raises
            raise _UndecodableError(f"the reply cannot be decoded: {_first_line(error)}") from error

    def _with_whitespace(self, completion: Completion) -> Completion:
        """Count the reply's tokens that are nothing but white space."""
        num_reply_tokens = completion.num_output_tokens - completion.num_thought_tokens
        known = self._is_whitespace
        count = 0
        for token_id in completion.output_token_ids[-num_reply_tokens:] if num_reply_tokens else ():
            if token_id not in known:
                known[token_id] = self._decode((token_id,)).isspace()
            count += known[token_id]
        return dataclasses.replace(completion, num_whitespace_tokens=count)

    def close(self) -> None:
        """Stop the engine's processes and wait for them."""
        # By default vLLM kills its processes after 5 s, which leaks their shared memory.
        self._llm.llm_engine.engine_core.shutdown(timeout=_SHUTDOWN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _is_refusal(error: BaseException | None) -> TypeGuard[Exception]:
    """Whether vLLM refused one request, and is itself well."""
    from vllm.exceptions import VLLMClientError

    return isinstance(error, ValueError | VLLMClientError)


def _wake_when_it_dies(client: Any) -> None:
    """Have whoever waits for an output hear that the engine's process has ended.

    vLLM notices it, but leaves a caller of `step` that is waiting already to wait for ever.
    """
    from vllm.v1.engine.core_client import SyncMPClient
    from vllm.v1.engine.exceptions import EngineDeadError

    if not isinstance(client, SyncMPClient):
        return
    outputs: Any = client.outputs_queue
    manager: Any = client.resources.engine_manager
    sentinels = manager.sentinels()

    def wait() -> None:
        multiprocessing.connection.wait(sentinels)
        outputs.put_nowait(EngineDeadError())

    threading.Thread(target=wait, name="engine-watch", daemon=True).start()


_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|No available memory for the cache blocks|can't allocate memory"
    r"|std::bad_alloc|Free memory on device .* is less than desired",
    re.IGNORECASE,
)
_SHARED = re.compile(r"Free memory on device .* is less than desired", re.IGNORECASE)


def start_error(message: str, said: str, *, hint: str) -> EngineError:
    """The error for a start that failed, by what vLLM said: for want of memory, or otherwise."""
    if (found := _MEMORY.search(said)) is None:
        return EngineError(message, hint=hint)
    error = EngineMemoryError(f"{message} ({found[0]})", hint=hint)
    error.device_is_shared = _SHARED.search(said) is not None
    return error


@dataclass(slots=True)
class _Running:
    """A request between its first call and its completion."""

    request: Request
    steps: Steps
    call: Call | None = None
    is_begun: bool = False
    since: float = 0.0


def _answer(running: _Running, output: Any) -> Answer:
    call, generated = running.call, output.outputs[0]
    assert call is not None, "an output is of a call"
    candidates: dict[int, float] = {}
    scores: tuple[TokenScore, ...] = ()
    if call.purpose == "option_logprobs":
        candidates = {token: entry.logprob for token, entry in generated.logprobs[0].items()}
    elif call.purpose == "token_scores":
        scores = tuple(
            _token_score(token_id, position)
            for token_id, position in zip(
                call.token_ids[call.scored_from :],
                output.prompt_logprobs[call.scored_from :],
                strict=True,
            )
        )
    return Answer(
        text=generated.text,
        token_ids=tuple(generated.token_ids),
        finish_reason=str(generated.finish_reason),
        stopped_by_text=call.stop_text is not None and generated.stop_reason == call.stop_text,
        num_cached_tokens=output.num_cached_tokens or 0,
        latency_s=time.monotonic() - running.since,
        candidate_logprobs=candidates,
        token_scores=scores,
    )


def _token_score(token_id: int, position: Mapping[int, Any]) -> TokenScore:
    """One position of vLLM's prompt logprobs: the token that stands there, and the first choice."""
    own = position[token_id]
    best = max(entry.logprob for entry in position.values())
    return TokenScore(own.logprob, own.rank, best)


def _abort(core: Any, keys: list[str]) -> None:
    try:
        core.abort_request(keys)
    except Exception:
        # The engine is going or gone; closing it is all that is left, and the caller does that.
        logging.getLogger(__name__).debug("abort failed", exc_info=True)


def _read_end(log_file: Path, start: int) -> str:
    """What was logged since `start`, or the end of it."""
    try:
        with log_file.open("rb") as log:
            log.seek(max(start, log_file.stat().st_size - 1_000_000))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
