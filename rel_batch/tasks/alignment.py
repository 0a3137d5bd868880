"""The alignment in a question of REL-B1: which sequences it has.

    >>> taxa_names("Is there homoplasy?\\n>18\\nACGT\\n>28\\nACGA\\n")
    ('18', '28')

Surprising: a name is whatever stands after ">", so it may look like anything; what would make a
list of names say two things is refused here, once for the constraint, the parser and the score.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from rel_batch.tasks.task import FieldError

# Starts with a plain character, which is found much faster than a start of line.
_HEADER = re.compile(r"\n[ \t]*>([^\n]*)")


# Reading and scoring ask for those of one question several times, one after another.
@functools.lru_cache(maxsize=16)
def taxa_names(question: str) -> tuple[str, ...]:
    """The names of the sequences in the FASTA of a question, in its order.

    Raises FieldError where there are fewer than two, one is empty or repeated, or a list of them
    could be read in two ways.
    """
    names = tuple(map(str.strip, _HEADER.findall("\n" + question)))
    if len(names) < 2:
        raise FieldError("question", f"expected a FASTA alignment, found {len(names)} sequences")
    known = set(names)
    if len(known) != len(names) or "" in known:
        twice = next(name for name in names if not name or names.count(name) > 1)
        raise FieldError("question", f"a sequence has an empty or repeated name: {twice!r:.80}")
    # Nearly always there is none, and looking at each name takes as long as finding them.
    every = "\n".join(names)
    if "<think>" in every or "</think>" in every:
        thought = next(name for name in names if "<think>" in name or "</think>" in name)
        raise FieldError("question", f"a name looks like a thought: {thought!r:.80}")
    if ", " in every:
        _refuse_two_readings(names)
    return names


def _refuse_two_readings(names: Sequence[str]) -> None:
    known = set(names)
    lengths = sorted({len(name) for name in names})
    for name in names:
        for length in lengths if ", " in name else ():
            if name[:length] in known and name.startswith(", ", length):
                raise FieldError(
                    "question",
                    f"the name {name!r:.80} starts with the name {name[:length]!r:.80} and a comma,"
                    " so that a list of taxa has two readings",
                )
