"""What a constraint changed: the model's own view of a constrained reply, and of the other options.

A constraint masks tokens before any log-probability is taken, so a constrained call cannot say what
the model would have preferred. One more call, over prompt and reply with nothing to generate, can.
The distribution over a short list of options needs one call for each token at which they part.

Surprising: a model's first choice can be overruled by rounding, too. The reply was decoded and is
measured in batches of other shapes, so where two tokens are almost equally likely their ranks may
swap: such a step costs next to nothing in `logprob_cost`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from rel_batch.engine.calls import Answer, Call
from rel_batch.records import Completion

# Candidates of one call (vLLM's MAX_LOGPROB_TOKEN_IDS).
MAX_CANDIDATES = 128


def measured(
    completion: Completion, context: tuple[int, ...], reply_token_ids: tuple[int, ...]
) -> Generator[Call, Answer, Completion]:
    """`completion` with what the model, unconstrained, thinks of each token of its reply."""
    if not reply_token_ids:
        return completion
    answer = yield Call(
        purpose="token_scores",
        token_ids=context + reply_token_ids,
        max_tokens=1,
        scored_from=len(context),
    )
    scores = answer.token_scores
    if len(scores) != len(reply_token_ids):
        # Another engine, another version: a figure of other tokens would be worse than none.
        return replace(
            completion,
            error=f"distortion not measured: {len(scores)} scores of {len(reply_token_ids)} tokens",
        )
    return replace(
        completion,
        token_logprobs=tuple(score.logprob for score in scores),
        token_ranks=tuple(score.rank for score in scores),
        overruled_share=sum(score.rank > 1 for score in scores) / len(scores),
        logprob_cost=sum(score.best_logprob - score.logprob for score in scores),
    )


def option_logprobs(
    context: tuple[int, ...], options: Sequence[tuple[str, tuple[int, ...]]]
) -> Generator[Call, Answer, dict[str, float]]:
    """The log-probability of each option's tokens after `context`.

    Each option has the tokens that the tokenizer writes it with; other ways to write the same text
    are left out, as is what follows. The sum over the options is what the model says at all of
    them, and at most 1.
    """
    following: dict[tuple[int, ...], dict[int, float]] = {}
    for branch, tokens in _branches(options).items():
        answer = yield Call(
            purpose="option_logprobs",
            token_ids=context + branch,
            max_tokens=1,
            candidates=tokens,
        )
        following[branch] = dict(answer.candidate_logprobs)
    return {
        option: sum(following[ids[:at]][ids[at]] for at in range(len(ids)))
        for option, ids in options
    }


def _branches(
    options: Sequence[tuple[str, tuple[int, ...]]],
) -> Mapping[tuple[int, ...], tuple[int, ...]]:
    """For each beginning that options share, the tokens that may follow it."""
    branches: dict[tuple[int, ...], list[int]] = {}
    for _, ids in options:
        for at, token_id in enumerate(ids):
            following = branches.setdefault(ids[:at], [])
            if token_id not in following:
                following.append(token_id)
    return {branch: tuple(tokens) for branch, tokens in branches.items()}
