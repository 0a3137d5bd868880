"""Proof that an engine constrains at all, before a night is spent on it.

Nothing in vLLM's answer says that a constraint was applied, and a constraint that is dropped
makes no error. So requests are asked at the start whose prompt pulls one way and whose constraint
admits only something else: one text that no model would say, and one constraint of each kind that
the run uses, which may be masked by different backends.
"""

from __future__ import annotations

from collections.abc import Sequence

from rel_batch.constraints import Constraint, Text
from rel_batch.engine import Engine
from rel_batch.errors import EngineError
from rel_batch.prompts import PromptRenderer
from rel_batch.records import PlannedRequest, Request

_QUESTION = "Reply with the single word: hello"
_ONLY = Constraint("format", Text("qzv-7:xk"))

CANARY_TOKENS = 32
"""Tokens that the first canary's reply may take; with its prompt it must fit the context."""


def prove_constraints_hold(
    engine: Engine, renderer: PromptRenderer, of_each_kind: Sequence[tuple[Constraint, int]]
) -> None:
    """Ask the canaries: the fixed one, and each given (constraint, max_tokens).

    Raises EngineError if the engine replied with anything that a constraint does not admit.
    """
    prompt = renderer.render([_QUESTION])[0]
    canaries = [(_ONLY, CANARY_TOKENS), *of_each_kind]
    requests = [
        _request(f"canary-{number}", prompt, constraint, max_tokens)
        for number, (constraint, max_tokens) in enumerate(canaries)
    ]
    for completion in engine.generate(requests):
        if completion.status not in ("ok", "truncated") or not completion.reply:
            raise EngineError(
                "the engine does not apply constraints of the kind "
                f"{completion.constraint_kind!r}: it replied {completion.reply[:80]!r} "
                f"({completion.error or completion.finish_reason})",
                hint="nothing was generated; is rel-batch installed where vLLM runs (its plugin "
                "must load there)? Another engine.backend may do",
            )


def _request(key: str, prompt: tuple[int, ...], constraint: Constraint, max_tokens: int) -> Request:
    planned = PlannedRequest(
        key=key,
        instance_key=key,
        task="canary",
        arm="canary",
        sample=0,
        seed=None,
        chunk=0,
        num_prompt_tokens=len(prompt),
        max_tokens=max_tokens,
        constraint_kind=constraint.kind,
        constraint_digest=constraint.digest,
    )
    return Request(planned, prompt, constraint, temperature=0.0, top_p=1.0)
