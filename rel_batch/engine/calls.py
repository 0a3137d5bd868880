"""What an engine is asked in one go, and what it answers: one request may take several calls.

    running = request_steps(request, decode)      # engine/steps.py
    call = next(running)                          # ask the engine ...
    call = running.send(answer)                   # ... until StopIteration holds the completion

Each engine makes its own parameters of a `Call`; what the calls of a request are, and what becomes
of their answers, is the same for all engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rel_batch.constraints import Constraint

Purpose = Literal["thought", "reply", "option_logprobs", "token_scores"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an engine.

    Attributes:
        purpose: "thought" and "reply" generate text; the other two generate nothing that is kept.
        token_ids: all that comes before what is generated.
        constraint: None for no constraint.
        stop_token_ids: end the text beside the model's own end-of-sequence, as its last token.
        stop_text: ends the text where it is written, and is left out of it.
        candidates: for "option_logprobs", the next tokens whose log-probabilities are asked.
        scored_from: for "token_scores", the first position of `token_ids` to be scored.
    """

    purpose: Purpose
    token_ids: tuple[int, ...]
    max_tokens: int
    constraint: Constraint | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    stop_text: str | None = None
    candidates: tuple[int, ...] = ()
    scored_from: int = 0


@dataclass(frozen=True, slots=True)
class TokenScore:
    """What the model thinks of a token that stands there: its log-probability, its rank (from 1),
    and the log-probability of the model's first choice."""

    logprob: float
    rank: int
    best_logprob: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call.

    Attributes:
        stopped_by_text: whether `stop_text` ended the text.
        candidate_logprobs: natural logs, without any constraint, at temperature 1.
        token_scores: one for each position from `scored_from` on.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stopped_by_text: bool = False
    num_cached_tokens: int = 0
    latency_s: float = 0.0
    candidate_logprobs: Mapping[int, float] = field(default_factory=dict[int, float])
    token_scores: tuple[TokenScore, ...] = ()
