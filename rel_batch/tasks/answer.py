"""Which part of a reply is the answer: everything that is not thought.

    >>> answer_of("<think>Answer 2?</think>Answer 5")
    'Answer 5'
    >>> answer_of("<think>Answer 2 or") == answer_of("Answer 2 or</think>") == ""
    True

Surprising: a closing `</think>` ends a thought even where no opening tag is seen, because many
chat templates open the thought in the prompt.
"""

from __future__ import annotations

_OPEN = "<think>"
_CLOSE = "</think>"

# Stated answers stand at the start or at the end; the middle of an endless one is not read.
_MOST_CHARS = 100_000


def answer_of(reply: str) -> str:
    """The text after the last thought; "" where a thought never closes."""
    answer = reply.rpartition(_CLOSE)[2]
    return answer.partition(_OPEN)[0].strip() if _OPEN in answer else answer.strip()


def clipped(answer: str) -> str:
    """The answer, or the start and the end of one that is too long to be read as a whole."""
    if len(answer) <= _MOST_CHARS:
        return answer
    return answer[: _MOST_CHARS // 2] + "\n" + answer[-_MOST_CHARS // 2 :]
