"""Proof that an engine constrains at all, before a night is spent on it.

Nothing in vLLM's answer says that a constraint was applied, and a constraint that is dropped
makes no error. So one request is asked at the start whose prompt pulls one way and whose
constraint admits only something no model would say.
"""

from __future__ import annotations

from rel_batch.constraints import Constraint, Text
from rel_batch.engine import Engine
from rel_batch.errors import EngineError
from rel_batch.prompts import PromptRenderer
from rel_batch.records import PlannedRequest, Request

_QUESTION = "Reply with the single word: hello"
_ONLY = "qzv-7:xk"


def prove_constraints_hold(engine: Engine, renderer: PromptRenderer) -> None:
    """Ask the canary. Raises EngineError if the engine replied with anything else."""
    constraint = Constraint("format", Text(_ONLY))
    prompt = renderer.render([_QUESTION])[0]
    planned = PlannedRequest(
        key="canary",
        instance_key="canary",
        task="canary",
        arm="canary",
        sample=0,
        seed=None,
        chunk=0,
        num_prompt_tokens=len(prompt),
        max_tokens=4 * len(_ONLY),
        constraint_kind=constraint.kind,
        constraint_digest=constraint.digest,
    )
    request = Request(planned, prompt, constraint, temperature=0.0, top_p=1.0)
    completion = next(iter(engine.generate([request])))
    if completion.reply != _ONLY or completion.finish_reason != "stop":
        raise EngineError(
            f"the engine does not apply constraints: asked for exactly {_ONLY!r}, it replied "
            f"{completion.reply[:80]!r} ({completion.error or completion.finish_reason})",
            hint="nothing was generated; try engine.backend: xgrammar (or guidance)",
        )


CANARY_TOKENS = 4 * len(_ONLY)
"""Tokens that the canary's reply may take; with its prompt it must fit the engine's context."""
