"""Which Yes or No of a text is its answer (REL-B1).

    >>> text = "I don't know at first. No, wait: the answer is **Yes**: 18, 28"
    >>> stated_label(text, corrections_in(text))["label"]
    'Yes'

A *label* is a Yes or No that stands as an answer: at the start of the text, of a line or of a
sentence, or after "the answer is"; the "no" of "no evidence" or "know" is none. After the last
correction ("wait", "actually") that has one, a label introduced as the answer goes before the one
that opens the text, and that before the last.
"""

from __future__ import annotations

import bisect
import re
from typing import Literal

Label = Literal["yes", "no"]

# Of endless labels the first and the last ones are read.
_MOST_LABELS = 200

_LABEL = re.compile(
    r"(?<![\w/-])(?:(?:yes|no)\s?(?:/|\||or\b|and\b)\s?(?:yes|no)\b|(?P<label>yes|no)(?![\w/]|-\w))",
    re.IGNORECASE,
)
MARKUP = " \t\n*_`\"'$({[\\>#-–—"
_CORRECTING = (
    r"\b(?:wait|actually|correction|scratch that|on second thought|on reflection|oops|sorry"
    r"|apologies|hold on|i made an? (?:mistake|error)|i mean|or rather)\b"
)
_CORRECTION = re.compile(_CORRECTING, re.IGNORECASE)
_INTRODUCED = re.compile(
    r"(?:\b(?:answer|conclusion|verdict|label|decision|homoplasy|prediction)\b[\s*_`\"']{0,4}"
    r"(?:is|would be|should be|:|=)?|\\boxed|<answer>|\bi (?:would )?say\b|\bi'd say\b"
    r"|\b(?:so|thus|hence|therefore|overall|finally)\b|"
    + _CORRECTING
    + r")[\s*_`\"'$({\[\\>:,]{0,9}"
    r"(?:\\?text(?:bf)?)?[\s{]{0,3}$",
    re.IGNORECASE,
)
_STANDS = re.compile(r"[*_`\"'$)}\]]{0,6}\s?(?:$|\n|[.,:;!({\[–—-])")
_NO_ANSWER = re.compile(r"\s(?:idea|clue|answer|conclusion|way|opinion|comment)\b", re.IGNORECASE)


def corrections_in(text: str) -> list[int]:
    """Where the text takes back what it said before, ascending."""
    return [match.start() for match in _CORRECTION.finditer(text)]


def stated_label(text: str, corrections: list[int]) -> re.Match[str] | None:
    """The Yes or No (its group `label`) that `text` states, given where it corrects itself."""
    labels = list(_LABEL.finditer(text))
    labels = labels[:1] + labels[1:][-_MOST_LABELS:]
    stated = [(kind, match) for match in labels if (kind := _kind(text, match))]
    if not stated:
        return None
    corrected = bisect.bisect_right(corrections, stated[-1][1].start())
    start = corrections[corrected - 1] if corrected else 0
    stretch = [(kind, match) for kind, match in stated if match.start() >= start]
    for wanted in ("introduced", "opening"):
        if preferred := [match for kind, match in stretch if kind == wanted]:
            return preferred[-1]
    return stretch[-1][1]


def _kind(text: str, match: re.Match[str]) -> Literal["introduced", "opening", "standing"] | None:
    """How a Yes or No stands in the text, or None where it is no answer."""
    if match["label"] is None:
        return None
    says_no = match["label"].lower() == "no"
    stands = _STANDS.match(text, match.end()) is not None
    before = text[max(0, match.start() - 80) : match.start()]
    lead = re.sub(r"\\?text(?:bf)?\{$", "", before).rstrip(MARKUP)
    if not lead and match.start() < 80:
        return None if says_no and _NO_ANSWER.match(text, match.end()) else "opening"
    if says_no and not stands:
        return None
    if _INTRODUCED.search(before):
        return "introduced"
    asked = lead.endswith("?") and re.search(r"homoplas|convergen|present", lead) is not None
    begins = lead.endswith((".", "!", ":", ";")) or "\n" in before[len(lead) :]
    return "standing" if begins or asked else None
