"""The values that travel between stages: instance, request, completion, score.

One request is planned for each instance x arm x sample, and each request ends as exactly one
completion, whatever happened to it (`Status` says what). A score is the verdict on the reply
of one completion. All are frozen: a stage makes new values and changes none.

Surprising: `Status` and `Verdict` are different things. A completion whose status is `ok` may
well be `unparsed`, and a `truncated` one may be `correct` when its answer was complete
before the cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rel_batch.constraints import Constraint
from rel_batch.thoughts import Markers, Thinking

Status = Literal[
    "ok",
    "truncated",
    "truncated_thinking",
    "too_long",
    "constraint_rejected",
    "constraint_violated",
    "engine_error",
]
STATUSES: tuple[Status, ...] = get_args(Status)
# Requests that never reached, or never came back from, the model have no reply.
STATUSES_WITHOUT_REPLY: frozenset[Status] = frozenset(
    {"too_long", "constraint_rejected", "engine_error"}
)

Verdict = Literal["correct", "incorrect", "unparsed"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

# Scores of different versions lie beside each other in a run folder. Raise it when the verdict
# on any reply can change.
SCORING_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Instance:
    """One REL record, normalised: the same fields and meanings for every task and version.

    Attributes:
        key: hash of the record's content and its file's stem; unique where upstream ids collide.
        id: the upstream id, for people.
        task: "REL-A1" ... "REL-C4".
        subset: what the file's name adds to the task ("3x3", "9x9", "001", "v1"), or "all".
        question: the paper's prompt, verbatim.
        answer: the gold, as released; for REL-B1 `taxa` always holds names (strings).
        metadata: as released.
        rc: relational complexity.
        num_entities: panels (A), taxa (B) or molecules (C) that the question shows.
        source_file: name of the file that the record was read from.
    """

    key: str
    id: str
    task: str
    subset: str
    question: str
    answer: Mapping[str, Any]
    metadata: Mapping[str, Any]
    rc: int
    num_entities: int
    source_file: str


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One planned generation, instance x arm x sample: a row of `requests.parquet`.

    `key` is a hash of everything that decides the reply (instance key, prompt token ids, model
    commit, arm, sample, seed). `seed` is None where decoding draws nothing at random.
    `max_tokens` bounds the answer; `num_reserved_tokens` is what a thought with its markers, and
    the measuring of distortion, may need of the context beside prompt and answer.
    """

    key: str
    instance_key: str
    task: str
    arm: str
    sample: int
    seed: int | None
    chunk: int
    num_prompt_tokens: int
    max_tokens: int
    constraint_kind: str
    constraint_digest: str
    num_reserved_tokens: int = 0

    @property
    def num_context_tokens(self) -> int:
        """Tokens of context that the request may need."""
        return self.num_prompt_tokens + self.num_reserved_tokens + self.max_tokens


@dataclass(frozen=True, slots=True)
class Compiled:
    """How a constraint compiled before the engine was started.

    Attributes:
        backend: what masks the tokens: "xgrammar", "guidance" or "machine" (our own matcher).
        compile_s: seconds that compiling took, the vocabulary not counted.
        problem: why it does not compile; None if it does.
    """

    backend: str
    compile_s: float
    problem: str | None


@dataclass(frozen=True, slots=True)
class Request:
    """A planned request with all that the engine needs to run it.

    Attributes:
        prompt_token_ids: exactly what the engine is given.
        thinking: how the request thinks before it answers; None to answer at once.
        markers: token ids of the model's own thought markers; None for a model without.
        thought_opened: whether the prompt has opened a thought.
        options: the texts that the constraint admits, with their token ids, where they are few and
            their distribution is asked for.
        decoding: "likelihood" replies with the option that the model ranks first.
        measure_distortion: whether to measure what the constraint changed.
        compiled: how the constraint compiled; None where there is none, or no real engine.
    """

    planned: PlannedRequest
    prompt_token_ids: tuple[int, ...]
    constraint: Constraint
    temperature: float
    top_p: float
    thinking: Thinking | None = None
    markers: Markers | None = None
    thought_opened: bool = False
    options: tuple[tuple[str, tuple[int, ...]], ...] = ()
    decoding: Literal["generate", "likelihood"] = "generate"
    measure_distortion: bool = False
    compiled: Compiled | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What became of one request. Kept raw and never rewritten.

    Attributes:
        reply: the generated text without its thought, special tokens left out; "" for statuses
            without a reply.
        output_token_ids: all token ids after the prompt in their order: the thought, what was
            put around it, and the reply, end-of-sequence included where it was drawn.
        finish_reason: vLLM's own ("stop", "length", ...); None where there is no reply.
        constraint_held: whether the reply matches the constraint that was asked for; None
            where there was no constraint or no complete reply to check.
        error: why there is no reply, or why a check failed; None otherwise.
        num_output_tokens: generated tokens, thought and reply; what was put around the thought
            is not among them.
        num_cached_tokens: prompt tokens whose KV cache was reused.
        latency_s: seconds from submission to the engine until the reply was finished.
        thought: the text of the thought without its markers; "" where there is none.
        num_thought_tokens: those of `num_output_tokens` that are thought, its end marker included.
        token_logprobs, token_ranks: for each token of the reply (end-of-sequence included), the
            natural log of the model's own probability for it without the constraint, and its rank
            (1 is the model's first choice). None where they were not measured.
        overruled_share: share of the reply's tokens whose rank is above 1.
        logprob_cost: nats, summed over the reply's tokens: the log-probability of the model's
            first choice less that of the token.
        option_logprobs: for each text that the constraint admits, the log-probability of its
            tokens after the prompt (and thought), end-of-sequence not counted; None where it was
            not measured or the texts are no short list.
        backend: what masked the tokens ("xgrammar", "guidance", "machine"); None for no constraint.
        compile_s: seconds that compiling the constraint took; None for no constraint.
        num_whitespace_tokens: tokens of the reply that are nothing but white space.
    """

    request_key: str
    instance_key: str
    task: str
    arm: str
    sample: int
    chunk: int
    status: Status
    reply: str
    output_token_ids: tuple[int, ...]
    finish_reason: str | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    constraint_kind: str
    constraint_held: bool | None
    seed: int | None
    error: str | None
    latency_s: float
    thought: str = ""
    num_thought_tokens: int = 0
    token_logprobs: tuple[float, ...] | None = None
    token_ranks: tuple[int, ...] | None = None
    overruled_share: float | None = None
    logprob_cost: float | None = None
    option_logprobs: Mapping[str, float] | None = None
    backend: str | None = None
    compile_s: float | None = None
    num_whitespace_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Score:
    """The verdict on one reply.

    Attributes:
        verdict: "correct", "incorrect" or "unparsed". Unparsed is never correct.
        precision, recall, f1: set overlap in [0, 1] where the task's answer is a set and gold
            is not empty (REL-B1 with gold yes, REL-C3); None elsewhere.
        prediction: what was read from the reply, as a JSON value; None where unparsed.
        failure: why the reply is not correct, one of the task's failure names; None if correct.
        overlap: REL-C2 on request: heavy atoms of the substructure that the answer shares with
            gold, over those of the larger of the two.
    """

    verdict: Verdict
    prediction: Any = None
    failure: str | None = None
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    overlap: float | None = None

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"

    @property
    def parsed(self) -> bool:
        return self.verdict != "unparsed"
