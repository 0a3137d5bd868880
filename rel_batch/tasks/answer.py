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


def answer_of(reply: str) -> str:
    """The text after the last thought; "" where a thought never closes."""
    answer = reply.rpartition(_CLOSE)[2]
    return answer.partition(_OPEN)[0].strip() if _OPEN in answer else answer.strip()
