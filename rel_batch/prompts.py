"""Questions to token ids: what the model is shown, rendered once.

With a chat template the question is the one user message; without one it is plain text after
exactly one beginning-of-sequence token (none where the tokenizer has none). Never two: a doubled
BOS costs points and nobody sees it. The ids made here are the ids that the engine is given.

How a model thinks is decided here, too: a template that has a switch for it is rendered with the
switch on for `native` and off for everything else, and what came of it is read from the ids.

Surprising: `ByteTokenizer` stands in where there is no checkpoint at all (the fake engine).
"""

# transformers is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from rel_batch.errors import ConfigError, EngineError
from rel_batch.thoughts import (
    Family,
    Markers,
    Mode,
    OnBudget,
    State,
    Thinking,
    family_of,
    thought_state,
)

ANSWER_PREFIX = "Final answer:"
PROMPTED_INSTRUCTION = (
    "\n\nThink step by step before you answer. When you are done, write "
    f'"{ANSWER_PREFIX}" on a line of its own and then the answer alone.\n'
)
"""Added to a question under `thinking: prompted`."""

# The variables by which templates are told to think or not to.
_SWITCHES = ("enable_thinking", "thinking")
_SYSTEM_PROBE = "Is there a system role?"
# Two questions without a common end: what their prompts end with alike is the template's own.
_PROBES = ("a", "Q7")
# Where transformers' own way from a call to the backend is written.
_BACKEND_MODULE = "transformers.tokenization_utils_tokenizers"


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that rendering uses."""

    bos_token_id: int | None
    chat_template: Any

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> Any: ...
    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...


class ByteTokenizer:
    """UTF-8 bytes as token ids, without special tokens or template."""

    bos_token_id: int | None = None
    chat_template: Any = None

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> dict[str, list[list[int]]]:
        del add_special_tokens
        return {"input_ids": [list(item.encode("utf-8", "replace")) for item in text]}

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        raise ValueError(f"ByteTokenizer has no chat template for {conversation!r} {kwargs!r}")


class PromptRenderer:
    """Renders questions for one tokenizer. Pure: equal questions give equal ids.

    `thinks="never"` says that the checkpoint has no thoughts, whatever its template names.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        chat_template: Literal["auto", "none"],
        thinks: Literal["auto", "never"] = "auto",
    ) -> None:
        self._tokenizer = tokenizer
        self.uses_chat_template = chat_template == "auto" and bool(tokenizer.chat_template)
        self._template = str(tokenizer.chat_template) if self.uses_chat_template else ""
        self._switches = [name for name in _SWITCHES if re.search(rf"\b{name}\b", self._template)]
        self._endings: dict[bool, tuple[int, ...]] = {}
        self.family: Family | None = family_of(self._template) if thinks == "auto" else None

    @property
    def template_digest(self) -> str:
        """Changes when the template does; "plain" where none is used."""
        if not self.uses_chat_template:
            return "plain"
        return hashlib.sha256(self._template.encode()).hexdigest()[:16]

    @functools.cached_property
    def markers(self) -> Markers | None:
        """The ids of the model's thought markers; None for a model without thoughts."""
        if self.family is None:
            return None
        family = self.family
        between = "" if family.close == family.end else family.after_end
        return Markers(
            open=self._ids(family.open),
            end=self._ids(family.end),
            close=self._ids(family.close),
            end_of_thought=self._ids(family.end + between),
        )

    @functools.cached_property
    def has_system_role(self) -> bool:
        """Whether there is a template, and it writes a system prompt in any way of its own."""
        if not self.uses_chat_template:
            return False
        try:
            text = self._apply_template(_PROBES[0], think=False, system=_SYSTEM_PROBE)
        except Exception:  # a template refuses a role by raising whatever it likes
            return False
        return _SYSTEM_PROBE in text

    def render_text(self, question: str, *, think: bool = False, system: str = "") -> str:
        """The prompt as text, before tokenisation; `think` turns the template's switch on.

        A system prompt that the template has no role for is put before the question, with a blank
        line between.
        """
        if system and not self.has_system_role:
            question, system = f"{system}\n\n{question}", ""
        if not self.uses_chat_template:
            return question
        try:
            return self._apply_template(question, think=think, system=system)
        except Exception as error:  # a template is a stranger's program: it may raise anything
            raise EngineError(
                f"the tokenizer's chat template cannot render a question: {error}",
                hint="set chat_template: none to send the question as plain text",
            ) from error

    def _apply_template(self, question: str, *, think: bool, system: str) -> str:
        messages = [{"role": "system", "content": system}] if system else []
        return str(
            self._tokenizer.apply_chat_template(
                [*messages, {"role": "user", "content": question}],
                tokenize=False,
                add_generation_prompt=True,
                **dict.fromkeys(self._switches, think),
            )
        )

    def render(
        self, questions: Sequence[str], *, think: bool = False, system: str = ""
    ) -> list[tuple[int, ...]]:
        """The token ids of each question's prompt.

        Raises EngineError, also where a question changes what the template does about thoughts.
        """
        rendered = self._render(questions, think=think, system=system)
        if self.markers is not None:
            expected, length = self.thought_state(think=think), len(self._ending(think=think))
            for question, ids in zip(questions, rendered, strict=True):
                # The ids before may differ even so: a tokenizer can join a question's last
                # character to what follows it.
                if thought_state(ids[len(ids) - length :], self.markers) != expected:
                    raise EngineError(
                        "the chat template does something else about thoughts for another "
                        f"question: {question[:80]!r}",
                        hint="set chat_template: none, or model.thinks: never",
                    )
        return rendered

    def _render(
        self, questions: Sequence[str], *, think: bool, system: str = ""
    ) -> list[tuple[int, ...]]:
        texts = [self.render_text(question, think=think, system=system) for question in questions]
        bos = self._tokenizer.bos_token_id
        rendered: list[tuple[int, ...]] = []
        for ids in self._encode(texts):
            lead = 0
            while bos is not None and lead < len(ids) and ids[lead] == bos:
                lead += 1
            # A template writes its own BOS, or leaves it out on purpose; plain text gets one.
            wanted = bos is not None and (lead > 0 or not self.uses_chat_template)
            rendered.append(((bos,) if wanted and bos is not None else ()) + tuple(ids[lead:]))
        return rendered

    def _encode(self, texts: list[str]) -> Iterable[Sequence[int]]:
        """The ids of each text; as the tokenizer gives them, but sooner where it can be asked."""
        if not self._is_plain:
            return self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        # Without the offsets that nobody reads: 1.6 times as fast with 262,144 tokens.
        backend: Any = self._tokenizer
        encodings = backend.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    @functools.cached_property
    def _is_plain(self) -> bool:
        """Whether the tokenizer does nothing but call its backend, with the settings it has."""
        kind: Any = type(self._tokenizer)
        module = str(getattr(kind, "__module__", ""))
        backend: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        return (
            hasattr(backend, "encode_batch_fast")
            and getattr(getattr(kind, "_encode_plus", None), "__module__", "") == _BACKEND_MODULE
            and module.startswith("transformers.")
            and backend.padding is None
            and backend.truncation is None
            and backend.encode_special_tokens
            == bool(getattr(self._tokenizer, "split_special_tokens", False))
        )

    def thought_state(self, *, think: bool) -> State:
        """What a prompt does about thoughts, read from the ids that follow the question.

        A question may quote a marker; that opens nothing.
        """
        if self.markers is None:
            return "absent"
        return thought_state(self._ending(think=think), self.markers)

    def thinking(
        self, mode: Mode, *, budget: int, on_budget: OnBudget, answers_at_once: bool, arm: str
    ) -> Thinking | None:
        """How requests of an arm think; None where they do not.

        `answers_at_once` says that the reply has to start with the answer (a constraint, options to
        rank). Raises ConfigError where the model cannot think that way, or would anyway.
        """
        if mode == "native":
            return self._native(budget, on_budget, arm)
        if answers_at_once or mode == "prompted":
            self._refuse_masked_thought(mode, arm)
        if mode == "none":
            return None
        closing = self._ids(f"\n\n{ANSWER_PREFIX}\n")
        return Thinking(
            mode="prompted",
            budget=budget,
            on_budget=on_budget,
            opening=(),
            stop_token_ids=(),
            stop_text=ANSWER_PREFIX,
            closing=closing,
            forced_closing=closing,
        )

    def continuation_ids(self, text: str) -> tuple[int, ...]:
        """The ids of `text` as it stands at the start of a line.

        Some tokenizers put a space before the first word of whatever they are given.
        """
        line, whole = self._ids("\n"), self._ids("\n" + text)
        return whole[len(line) :] if whole[: len(line)] == line else self._ids(text)

    def _native(self, budget: int, on_budget: OnBudget, arm: str) -> Thinking:
        family, markers = self.family, self.markers
        if family is None or markers is None:
            raise ConfigError(
                f"arm {arm!r}: thinking: native, but the chat template names no thought markers "
                "that are known",
                hint="thinking: prompted works for any model",
            )
        state = self.thought_state(think=True)
        if state == "closed":
            raise ConfigError(
                f"arm {arm!r}: thinking: native, but the chat template closes the thought before "
                "the model can think",
                hint="thinking: prompted works for any model",
            )
        single = len(markers.end) == 1
        return Thinking(
            mode="native",
            budget=budget,
            on_budget=on_budget,
            opening=() if state == "open" else self._ids(family.opening),
            stop_token_ids=markers.end if single else (),
            stop_text=None if single else family.end,
            closing=self._ids(family.after_end) if family.after_end else (),
            forced_closing=self._ids(family.before_end + family.end + family.after_end),
        )

    def _refuse_masked_thought(self, mode: Mode, arm: str) -> None:
        """A thinking model that has to answer at once could not think, or would think in its
        answer."""
        if self.family is None:
            return
        state = self.thought_state(think=False)
        if state == "closed":
            return
        if state == "absent" and self._ending_differs_by_switch:
            return
        does = "opens a thought" if state == "open" else "lets the model think by default"
        raise ConfigError(
            f"arm {arm!r}: thinking: {mode}, but the chat template ({self.family.name} style) "
            f"{does} and has no switch against it (enable_thinking, thinking): the constraint "
            "would forbid the thought that the model was trained to begin with",
            hint="set thinking: native with a thinking_budget; or constraint: none; or, if the "
            "model does not think, model.thinks: never",
        )

    @functools.cached_property
    def _ending_differs_by_switch(self) -> bool:
        """Whether the template does anything else where it is told not to think."""
        return self._render(_PROBES, think=False) != self._render(_PROBES, think=True)

    def _ending(self, *, think: bool) -> tuple[int, ...]:
        """The ids that the template puts after any question."""
        if think not in self._endings:
            one, other = self._render(_PROBES, think=think)
            length = 0
            while length < min(len(one), len(other)) and one[-length - 1] == other[-length - 1]:
                length += 1
            self._endings[think] = one[len(one) - length :]
        return self._endings[think]

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer([text], add_special_tokens=False)["input_ids"][0])


def load_tokenizer(path: str, *, revision: str | None, trust_remote_code: bool) -> Any:
    """The tokenizer at `path` (a folder or Hub id). Raises EngineError."""
    from transformers import AutoTokenizer  # slow to import, and not needed to score

    try:
        return AutoTokenizer.from_pretrained(
            path, revision=revision or "main", trust_remote_code=trust_remote_code
        )
    except Exception as error:  # transformers raises many kinds for an unusable folder
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise EngineError(
            f"cannot load the tokenizer of {path}: {first_line}",
            hint="set model.tokenizer, or model.trust_remote_code: true if you trust its code",
        ) from error
