"""Questions to token ids: what the model is shown, rendered once.

With a chat template the question is the one user message; without one it is plain text after
exactly one beginning-of-sequence token (none where the tokenizer has none). Never two: a doubled
BOS costs points and nobody sees it. The ids made here are the ids that the engine is given.

Surprising: `ByteTokenizer` stands in where there is no checkpoint at all (the fake engine).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from rel_batch.errors import EngineError


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
    """Renders questions for one tokenizer. Pure: equal questions give equal ids."""

    def __init__(self, tokenizer: Tokenizer, chat_template: Literal["auto", "none"]) -> None:
        self._tokenizer = tokenizer
        self.uses_chat_template = chat_template == "auto" and bool(tokenizer.chat_template)

    @property
    def template_digest(self) -> str:
        """Changes when the template does; "plain" where none is used."""
        if not self.uses_chat_template:
            return "plain"
        return hashlib.sha256(str(self._tokenizer.chat_template).encode()).hexdigest()[:16]

    def render_text(self, question: str) -> str:
        """The prompt as text, before tokenisation."""
        if not self.uses_chat_template:
            return question
        try:
            text = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": question}],
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception as error:  # a template is a stranger's program: it may raise anything
            raise EngineError(
                f"the tokenizer's chat template cannot render a question: {error}",
                hint="set chat_template: none to send the question as plain text",
            ) from error
        return str(text)

    def render(self, questions: Sequence[str]) -> list[tuple[int, ...]]:
        """The token ids of each question's prompt."""
        texts = [self.render_text(question) for question in questions]
        bos = self._tokenizer.bos_token_id
        rendered: list[tuple[int, ...]] = []
        for ids in self._tokenizer(texts, add_special_tokens=False)["input_ids"]:
            lead = 0
            while bos is not None and lead < len(ids) and ids[lead] == bos:
                lead += 1
            # A template writes its own BOS, or leaves it out on purpose; plain text gets one.
            wanted = bos is not None and (lead > 0 or not self.uses_chat_template)
            rendered.append(((bos,) if wanted and bos is not None else ()) + tuple(ids[lead:]))
        return rendered


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
