"""A model's own thoughts: how each family of templates marks them, read from token ids.

    >>> markers = Markers(open=(1,), end=(2,), close=(2,))
    >>> thought_state([7, 1, 8, 2, 9], markers), thought_state([7, 1], markers)
    ('closed', 'open')
    >>> split_thought([8, 2, 9], markers, opened=True)
    Split(thought=(8,), answer=(9,), closed=True, num_thought_tokens=2)

Pure: nothing here knows a tokenizer. A family is recognised by its markers in the chat template's
text; whether a prompt has opened a thought is read from its rendered ids and from nothing else.

Surprising: in gpt-oss's channels the marker that ends a thought and the one after which the answer
stands are different, with a message header between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Mode = Literal["none", "native", "prompted"]
OnBudget = Literal["force_close", "truncate"]
State = Literal["open", "closed", "absent"]


@dataclass(frozen=True, slots=True)
class Family:
    """How a family of checkpoints writes its thoughts.

    Attributes:
        open: what a thought starts with.
        end: what the model writes when its thought is over.
        close: what stands right before the answer; `end` in all families but one.
        opening: what is written to open a thought.
        before_end: what is written between a thought that was cut and `end`.
        after_end: what is written between `end` and the answer.
    """

    name: str
    open: str
    end: str
    close: str
    opening: str
    before_end: str
    after_end: str


# As the model cards and templates of each family have it.
FAMILIES = (
    # Qwen3, DeepSeek-R1 and V3.1, GLM, SmolLM3, Nemotron and others.
    Family("<think>", "<think>", "</think>", "</think>", "<think>\n", "\n", "\n\n"),
    Family(
        "gpt-oss",
        "<|channel|>analysis<|message|>",
        "<|end|>",
        "<|channel|>final<|message|>",
        "<|channel|>analysis<|message|>",
        "",
        "<|start|>assistant<|channel|>final<|message|>",
    ),
    Family("Magistral", "[THINK]", "[/THINK]", "[/THINK]", "[THINK]", "", ""),
    Family("Seed-OSS", "<seed:think>", "</seed:think>", "</seed:think>", "<seed:think>\n", "", ""),
)


def family_of(chat_template: str) -> Family | None:
    """The family whose markers the template names; None for a model without thoughts."""
    for family in FAMILIES:
        if family.open in chat_template or family.close in chat_template:
            return family
    return None


@dataclass(frozen=True, slots=True)
class Markers:
    """A family's markers as token ids; `end_of_thought` is all that stands between a thought and
    its answer."""

    open: tuple[int, ...]
    end: tuple[int, ...]
    close: tuple[int, ...]
    end_of_thought: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Thinking:
    """What is done so that a request thinks before it answers.

    The context of the answer is prompt, `opening`, thought, and `closing` where the model ended
    its thought with the one token in `stop_token_ids`, or else `forced_closing`. Both bounds and
    texts are token ids.

    Attributes:
        budget: tokens that the thought may take.
        on_budget: what becomes of a thought that takes them all.
        stop_text: ends a thought where it is written (and is no part of it); None for nothing.
    """

    mode: Literal["native", "prompted"]
    budget: int
    on_budget: OnBudget
    opening: tuple[int, ...]
    stop_token_ids: tuple[int, ...]
    stop_text: str | None
    closing: tuple[int, ...]
    forced_closing: tuple[int, ...]

    @property
    def num_reserved_tokens(self) -> int:
        """Most tokens of context that stand between the prompt and the answer."""
        return len(self.opening) + self.budget + max(len(self.closing), len(self.forced_closing))


@dataclass(frozen=True, slots=True)
class Split:
    """Generated ids taken apart; `num_thought_tokens` counts the thought's markers, too."""

    thought: tuple[int, ...]
    answer: tuple[int, ...]
    closed: bool
    num_thought_tokens: int


def thought_state(token_ids: Sequence[int], markers: Markers) -> State:
    """Whether the last marker in `token_ids` leaves a thought open, has closed it, or is none."""
    opened, closed = _last(token_ids, markers.open), _last(token_ids, markers.close)
    if opened < 0 and closed < 0:
        return "absent"
    return "open" if opened > closed else "closed"


def split_thought(token_ids: Sequence[int], markers: Markers, *, opened: bool) -> Split:
    """Take the ids that a model generated apart; `opened` says that the prompt opened a thought.

    The answer is what follows the last thought that was closed, up to a thought that never is;
    where none was closed, it is what stands before the one that is open.
    """
    closed_at = _last(token_ids, markers.close)
    start = closed_at + len(markers.close) if closed_at >= 0 else 0
    still_open = _first(token_ids, markers.open, start)
    if closed_at < 0 and opened:
        answer: tuple[int, ...] = ()
    else:
        answer = tuple(token_ids[start : still_open if still_open >= 0 else None])
    if closed_at >= 0:
        thought = token_ids[:start]
    elif opened:
        thought = token_ids
    else:
        thought = token_ids[still_open:] if still_open >= 0 else ()
    return Split(
        thought=_without(thought, markers),
        answer=answer,
        closed=still_open < 0 and (closed_at >= 0 or not opened),
        num_thought_tokens=len(token_ids) - len(answer),
    )


def _without(token_ids: Sequence[int], markers: Markers) -> tuple[int, ...]:
    """The ids with every marker taken out."""
    kept: list[int] = []
    at = 0
    sequences = (markers.end_of_thought, markers.open, markers.close, markers.end)
    while at < len(token_ids):
        for sequence in sequences:
            if sequence and tuple(token_ids[at : at + len(sequence)]) == sequence:
                at += len(sequence)
                break
        else:
            kept.append(token_ids[at])
            at += 1
    return tuple(kept)


def _first(token_ids: Sequence[int], sequence: tuple[int, ...], start: int) -> int:
    for at in range(start, len(token_ids) - len(sequence) + 1):
        if tuple(token_ids[at : at + len(sequence)]) == sequence:
            return at
    return -1


def _last(token_ids: Sequence[int], sequence: tuple[int, ...]) -> int:
    for at in range(len(token_ids) - len(sequence), -1, -1):
        if tuple(token_ids[at : at + len(sequence)]) == sequence:
            return at
    return -1
