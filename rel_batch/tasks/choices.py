"""Reads which of the printed choices an answer states (REL-A1 to REL-A4).

    >>> panels = [(1.0, 2.0)] + [(9.0, float(i)) for i in range(7)]
    >>> read_choice("Answer 2. Wait, the correct choice is Answer 1.", 0, panels, truncated=False)
    1
    >>> read_choice("It is either 5 or Answer 4.", 0, panels, truncated=False)
    'undecided'

The rule: the one choice stated last counts. Statements go before mentions (`choice_mentions.py`),
and what follows a correction ("wait", "actually") goes before what it corrects. Two choices joined
as alternatives are undecided.

Decided where the rule leaves room: a number word counts as its number ("Answer five"); an answer
that is only the cell values of exactly one choice counts as that choice; ordinals ("the third
option") and letters do not count, as the prompt's labels are numbers.

Surprising: a cut reply is held to more. Only a statement after the last correction counts, and
only where the text went on far enough to show that the statement was over.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from typing import Literal

from rel_batch.tasks.answer import clipped
from rel_batch.tasks.choice_mentions import TUPLE_MARK, Mention, has_alternative, mentions

Failure = Literal["no_choice", "undecided", "out_of_range", "truncated"]

_CORRECTION = re.compile(
    r"\b(?:wait|actually|correction|scratch\sthat|on\ssecond\sthought|on\sreflection|oops|sorry"
    r"|apologies|hold\son|i\smade\san?\s(?:mistake|error)|i\smean|or\srather"
    r"|let\sme\s(?:re|double|check|verify))|\bno,",
    re.IGNORECASE,
)
_DOUBT = re.compile(
    r"\b(?:cannot|can't|can\snot|unable\sto|could\snot|couldn't|hard\sto)\s(?:tell|decide|say"
    r"|determine|choose)|\b(?:not\ssure|unsure|undecided|toss-up)\b[^.\n]{0,20}\bwhich\b",
    re.IGNORECASE,
)
_OVER = re.compile(r"\s?[)\]]?\s?(?:[.;!\n(]|,?\s(?:because|since|as|which)\b)", re.IGNORECASE)

_DECIMAL = r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?"
_TUPLE = re.compile(rf"[(\[]\s?{_DECIMAL}(?:\s?,\s?{_DECIMAL})+\s?,?\s?[)\]]")
_SAYS_PANEL = re.compile(
    r"[^\w]*(?:(?:so|thus|hence|therefore|the|final|correct|missing|answer|panel|choice|option"
    r"|cell|tuple|entry|matrix|is|should|must|be)\b[^\w]*){0,9}",
    re.IGNORECASE,
)


def read_choice(
    answer: str, base: int, choices: Sequence[tuple[float, ...]], *, truncated: bool
) -> int | Failure:
    """The 0-based choice that `answer` states, or why it states none.

    `choices` holds the numbers printed for each choice, in order; the first is labelled `base`.
    `truncated` says that the answer was cut.
    """
    labels = {str(base + index): index for index in range(len(choices))}
    # No longer label starts with a label, so a bare one is complete even where it was cut.
    if answer in labels:
        return labels[answer]
    text, tuples = _plain(clipped(answer))
    named = mentions(text)
    chosen = _stated_last(text, named, truncated=truncated)
    if chosen is None:
        stated = _stated_values(text, tuples, choices)
        return stated if stated is not None else ("truncated" if truncated else "no_choice")
    if truncated and not _OVER.match(text, chosen.end):
        return "truncated"
    if has_alternative(text, chosen, named) or _DOUBT.search(text, chosen.end):
        return "undecided"
    return labels.get(chosen.number, "out_of_range")


def _plain(answer: str) -> tuple[str, list[tuple[float, ...]]]:
    """The text without markup, white space in single characters, tuples taken out."""
    text = answer.replace(TUPLE_MARK, " ").replace("’", "'")
    text = re.sub(r"\\(?:boxed|fbox)\b", " answer: ", text)
    text = re.sub(r"<([a-zA-Z_]{1,20})>", r" \1: ", text)
    text = re.sub(r"</[a-zA-Z_]{1,20}>", ";", text)
    text = re.sub(r"\\(?:[a-zA-Z]{1,20}|[\[\]()])", " ", text)
    text = re.sub(r"(?<=[0-9)])[*_ ]{0,4}\}", ";", text)
    text = re.sub(r"^[#>][#> ]*", "", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=[0-9])'|'(?=[0-9])|[*_`\"$\\{}\0]", " ", text)
    text = re.sub(r"[^\S\n]+", " ", text)
    text = re.sub(r" ?\n[ \n]*", "\n", text).strip()
    tuples: list[tuple[float, ...]] = []

    def taken_out(match: re.Match[str]) -> str:
        tuples.append(numbers_in(match[0]))
        return TUPLE_MARK

    return _TUPLE.sub(taken_out, text), tuples


def numbers_in(text: str) -> tuple[float, ...]:
    """All decimal numbers of a text, in order."""
    return tuple(float(number) for number in re.findall(_DECIMAL, text))


def _stated_last(text: str, named: Sequence[Mention], *, truncated: bool) -> Mention | None:
    """The last statement, else the last mention, of the last stretch that has one."""
    corrections = [match.start() for match in _CORRECTION.finditer(text)]
    if not named:
        return None
    later = bisect.bisect_right(corrections, named[-1].start)
    start = corrections[later - 1] if later else 0
    stretch = [mention for mention in named if mention.start >= start]
    statements = [mention for mention in stretch if mention.states]
    if truncated:
        return statements[-1] if statements and later == len(corrections) else None
    return (statements or stretch)[-1]


def _stated_values(
    text: str, tuples: list[tuple[float, ...]], choices: Sequence[tuple[float, ...]]
) -> int | None:
    """The one choice whose printed numbers are all that the answer says."""
    if not tuples or not _SAYS_PANEL.fullmatch(text.replace(TUPLE_MARK, " ")):
        return None
    values = tuple(number for numbers in tuples for number in numbers)
    equal = [index for index, choice in enumerate(choices) if choice == values]
    return equal[0] if len(equal) == 1 else None
