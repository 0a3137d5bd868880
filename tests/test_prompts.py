"""A question is rendered once, to the ids that the engine gets, and never with two BOS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rel_batch.errors import EngineError
from rel_batch.instances import read_instances
from rel_batch.prompts import ByteTokenizer, PromptRenderer, load_tokenizer

BOS = 1


class LetterTokenizer:
    """One id a character; the text "^" is the BOS, as a template would write it."""

    def __init__(self, *, bos: int | None = BOS, template: str | None = None) -> None:
        self.bos_token_id = bos
        self.chat_template = template

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> dict[str, Any]:
        assert not add_special_tokens, "a tokenizer left to itself may add a second BOS"
        return {"input_ids": [[BOS if c == "^" else ord(c) for c in item] for item in text]}

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> str:
        assert kwargs == {"tokenize": False, "add_generation_prompt": True}
        (message,) = conversation
        assert message["role"] == "user"
        assert self.chat_template is not None
        return self.chat_template.replace("Q", message["content"])


def ids(text: str) -> tuple[int, ...]:
    return tuple(BOS if c == "^" else ord(c) for c in text)


@pytest.mark.parametrize(
    ("tokenizer", "template_use", "question", "expected"),
    [
        (LetterTokenizer(), "auto", "abc", "^abc"),
        (LetterTokenizer(bos=None), "auto", "abc", "abc"),
        (LetterTokenizer(), "auto", "^abc", "^abc"),
        (LetterTokenizer(), "auto", "^^abc", "^abc"),
        (LetterTokenizer(template="^U:Q A:"), "auto", "abc", "^U:abc A:"),
        (LetterTokenizer(template="^^U:Q A:"), "auto", "abc", "^U:abc A:"),
        (LetterTokenizer(template="U:Q A:"), "auto", "abc", "U:abc A:"),
        (LetterTokenizer(template="^U:Q A:"), "none", "abc", "^abc"),
    ],
)
def test_a_prompt_has_the_bos_that_its_tokenizer_and_template_ask_for(
    tokenizer: LetterTokenizer, template_use: Any, question: str, expected: str
) -> None:
    renderer = PromptRenderer(tokenizer, template_use)
    assert renderer.render([question]) == [ids(expected)]


def test_the_question_is_sent_verbatim_as_plain_text() -> None:
    question = "\n   Line one\n\n  two  \n"
    rendered = PromptRenderer(ByteTokenizer(), "auto").render([question])[0]
    assert bytes(rendered).decode() == question


def test_rendering_many_equals_rendering_each() -> None:
    renderer = PromptRenderer(LetterTokenizer(template="^Q"), "auto")
    questions = ["a", "", "bcd"]
    assert renderer.render(questions) == [renderer.render([q])[0] for q in questions]


class WithSystem(LetterTokenizer):
    """Its template writes a system prompt as `role` has it, or refuses it."""

    def __init__(self, role: str) -> None:
        super().__init__(template="^U:Q A:")
        self.role = role

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> str:
        *system, user = conversation
        if system and self.role == "refused":
            raise ValueError("System role not supported")
        lead = self.role.replace("S", system[0]["content"]) if system else ""
        return lead + super().apply_chat_template([user], **kwargs)


@pytest.mark.parametrize(
    ("tokenizer", "template_use", "expected", "why"),
    [
        (WithSystem("S:S "), "auto", "be brief:be brief ^U:abc A:", "the template's own way"),
        (WithSystem("refused"), "auto", "^U:be brief\n\nabc A:", "the role is refused"),
        (WithSystem(""), "auto", "^U:be brief\n\nabc A:", "the role is silently dropped"),
        (WithSystem("S:S "), "none", "^be brief\n\nabc", "no template is used"),
        (LetterTokenizer(), "auto", "^be brief\n\nabc", "there is no template"),
    ],
)
def test_a_system_prompt_that_has_no_role_stands_before_the_question(
    tokenizer: LetterTokenizer, template_use: Any, expected: str, why: str
) -> None:
    renderer = PromptRenderer(tokenizer, template_use)
    assert renderer.render(["abc"], system="be brief") == [ids(expected)], why
    assert "be brief" not in renderer.render_text("abc")


def test_the_template_digest_changes_with_the_template() -> None:
    digests = {
        PromptRenderer(LetterTokenizer(template=t), "auto").template_digest
        for t in (None, "Q", "^Q")
    }
    assert len(digests) == 3


def test_a_template_that_fails_is_an_engine_error_with_a_way_out() -> None:
    class Broken(LetterTokenizer):
        def apply_chat_template(self, conversation: Any, **kwargs: Any) -> str:
            raise RuntimeError(f"roles must alternate: {conversation} {kwargs}")

    with pytest.raises(EngineError, match="chat_template: none") as caught:
        PromptRenderer(Broken(template="x"), "auto").render(["a"])
    assert "roles must alternate" in str(caught.value)


def test_a_plain_tokenizer_is_asked_in_the_quick_way_and_gives_the_same_ids(
    tiny_llama: Path,
) -> None:
    tokenizer: Any = load_tokenizer(str(tiny_llama), revision=None, trust_remote_code=False)
    questions = [instance.question for instance in read_instances("bundled")]
    questions += ["", " ", "é\u2028\U0001f600", "<s>", "a <s> </s> b"]
    renderer = PromptRenderer(tokenizer, "auto")
    assert renderer._is_plain  # pyright: ignore[reportPrivateUsage]
    asked = tokenizer(questions, add_special_tokens=False)["input_ids"]
    bos = tokenizer.bos_token_id
    expected = [(bos, *(ids[1:] if ids[:1] == [bos] else ids)) for ids in asked]
    assert renderer.render(questions) == expected
    tokenizer.backend_tokenizer.enable_truncation(3)
    limited = PromptRenderer(tokenizer, "auto")
    assert not limited._is_plain  # pyright: ignore[reportPrivateUsage]
