"""Every choice that an answer names, and how (REL-A1 to REL-A4).

    >>> named = mentions("Answer 2 fails. Answer 3 fits, so the answer is 5.")
    >>> [(m.number, m.states) for m in named]
    [('3', False), ('5', True)]

A *statement* says that a choice is the answer ("the answer is 5", "index: 5", a first or last line
that is only "Answer 5", "option 5 is correct"); a *mention* only names one ("Answer 5 matches"). A
choice that its own sentence rejects ("Answer 2 fails", "not Answer 2") is neither, nor is another
number (a row, a cell, a sum, a percentage) or the printed list of all choices.

Surprising: the text is one that `choices.py` has made plain, with `TUPLE_MARK` for each tuple.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
TUPLE_MARK = "\ue000"  # stands for a tuple of numbers, so that none of them is taken for a choice

_COUNTED = (
    r"\s?(?:%|percent|of\b|numbers?\b|attributes?\b|rows?\b|columns?\b|cells?\b|values?\b|times\b"
    r"|panels?\b|steps?\b|points?\b|elements?\b|choices\b|options\b|answers\b|or\smore\b)"
)
_NUMBER = (
    rf"(?P<n>(?<![0-9.])(?:(?<![a-z])-)?[0-9]{{1,9}}(?:\.[0-9]{{1,9}})?(?![\w%]|\.[0-9])(?!{_COUNTED})"
    rf"|(?:{'|'.join(_WORDS)})\b(?!\s(?:of|that|which|where|more)\b)(?!{_COUNTED}))"
)
_NOUN = r"(?:answer|ans|option|choice|index|panel|label|solution)"
_FILL = (
    r"(?:(?:therefore|thus|clearly|then|indeed|the|final|correct|right|answer|option|choice|index"
    r"|panel|label|number|no\.|is|it|:|=|\#|\(|\[|->|→|[-–—](?=\s))\s?){0,6}"
)
_NOT_OF_A_PART = r"(?<!row\s)(?<!column\s)(?<!col\s)(?<!attribute\s)(?<!cell\s)\b"
_IS = r"(?:is|was|=|:|->|→|⇒|[-–—](?=\s)|should\sbe|must\sbe|would\sbe|will\sbe|has\sto\sbe)"
_STATEMENTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_NOT_OF_A_PART}(?:{_NOUN}s?|correction)(?:\s(?:index|number|choice|option|label|set|panel)){{0,2}}"
        rf"\s?{_IS}\s?{_FILL}{_NUMBER}",
        rf"\b(?:choose|chose|pick|picked|select|selected|go\swith|going\swith|settle\son)\s"
        rf"{_FILL}{_NUMBER}",
        rf"\b{_NOUN}\s?[\#(\[]?\s?{_NUMBER}[)\]]?\s(?:(?:is|must\sbe|should\sbe|would\sbe)\s"
        rf"(?:\w{{1,12}}\s){{0,3}}(?:correct|right|missing|answer|solution)\b|completes\b)",
    )
)
_WHOLE_LINE = re.compile(
    r"(?:(?:so|thus|hence|therefore|finally|i\.e\.|it\sis|it's|my|the|final|correct|missing|i\sthink"
    r"|i\sbelieve|i\sguess|i'd\ssay|probably|likely|ans|solution|result"
    r"|answer|option|choice|index|panel|label|number|is)(?![a-z])[,:.]?\s?|(?:[:#=(\[→⇒]|=>|->|[-–—](?=\s))\s?)"
    r"{0,9}"
    rf"{_NUMBER}\s?[)\]]?\s?[.!;)]{{0,3}}",
    re.IGNORECASE,
)
_MENTION = re.compile(
    rf"{_NOT_OF_A_PART}(?:answer|option|choice|index)s?\s?(?:number\s|no\.\s?|\#|\(|\[|(?<=\w)-)?\s?"
    rf"{_NUMBER}",
    re.IGNORECASE,
)
_LEADING = re.compile(rf"[(\[#]?\s?{_NUMBER}\s?[)\]]?", re.IGNORECASE)
_LEADING_ENDS = re.compile(
    rf"\s?(?:because|since|as)\b|\s?\(|\s?[:–-]?\s?{TUPLE_MARK}", re.IGNORECASE
)
_REJECTED_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor|unlike|except|eliminat\w*|exclud\w*|rul(?:e|es|ed|ing)\sout"
    r"|reject\w*|discard\w*|instead\sof|rather\sthan|than|if|compar\w*|consider\w*|check\w*"
    r"|try|trying|test\w*)|n't)\b(?:(?!\b(?:but|so)\b)[^.;:,\n]){0,20}$",
    re.IGNORECASE,
)
_REJECTED_AFTER = re.compile(
    r"[)\]]?\s?(?:\?|(?:is|was|are|seems?|looks?|would\sbe|has|have|does|do|did|can|could|would"
    r"|will)(?:\s\w{1,12}){0,2}?(?:\snot|n't|\swrong|\sincorrect|\sinvalid|\sout|\sexcluded"
    r"|\seliminated|\splausible,?\sbut)\b|fails?\b|violates?\b|differs?\b|mismatch\w*|breaks?\b"
    r"|cannot\b|misses\b|lacks\b|(?:only\s)?(?:matches|fits|satisfies|shares|agrees)\b"
    r"[^.;,\n]{0,40}\bonly\b|(?:matches|fits|satisfies|shares|agrees)\b[^.;\n]{0,40},\sbut\b)",
    re.IGNORECASE,
)
_JOIN = (
    r"[)\]]?\s?,?\s?(?:\(?(?:or(?!\srather)|and|nor|to|vs\.?|versus|with|/|&|\||,|;\s?or"
    r"|[.,;]?\s?alternatively,?)\s?){1,2}(?:(?:maybe|perhaps|possibly|else|even|either|the)\s){0,2}"
)
_JOINED = re.compile(_JOIN, re.IGNORECASE)
_JOINED_NUMBER = re.compile(rf"{_JOIN}(?:{_NOUN}s?\s?)?[#(\[]?\s?{_NUMBER}", re.IGNORECASE)
_NUMBER_OR = re.compile(
    rf"{_NUMBER}[)\]]?\s?,?\s?(?:or(?!\srather)|/)\s?(?:(?:maybe|perhaps|possibly|the)\s){{0,2}}$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A choice named in the text: where its words start, where its number ends, which it is (as a
    label prints it), and whether it is stated as the answer."""

    start: int
    end: int
    number: str
    states: bool


def mentions(text: str) -> list[Mention]:
    """Every choice that the text names and does not reject, in order."""
    found: dict[int, Mention] = {}

    def add(match: re.Match[str], *, states: bool) -> None:
        found.setdefault(
            match.start("n"), Mention(match.start(), match.end("n"), _canonical(match["n"]), states)
        )

    for pattern in _STATEMENTS:
        for match in pattern.finditer(text):
            add(match, states=True)
    for start in sorted({0, text.rfind("\n") + 1}):
        end = text.find("\n", start)
        if match := _WHOLE_LINE.fullmatch(text, start, len(text) if end < 0 else end):
            add(match, states=True)
    match = _LEADING.match(text)
    if match and (_LEADING_ENDS.match(text, match.end()) or _other_joined(text, match)):
        add(match, states=True)
    # The printed list of choices, or a walk through it, chooses none of them.
    listed = [m for m in _MENTION.finditer(text) if _is_listed(text, m)]
    is_list = len({_canonical(m["n"]) for m in listed}) > 1
    for match in _MENTION.finditer(text):
        if not (is_list and _is_listed(text, match)):
            add(match, states=False)
    return [found[at] for at in sorted(found) if not _is_rejected(text, found[at])]


def _is_listed(text: str, match: re.Match[str]) -> bool:
    starts_line = match.start() == 0 or text[match.start() - 1] == "\n"
    return (
        starts_line
        and re.match(rf"\s?[:.)]\s?{TUPLE_MARK}", text[match.end("n") :][:4]) is not None
    )


def _is_rejected(text: str, mention: Mention) -> bool:
    before = text[max(0, mention.start - 40) : mention.start]
    after = text[mention.end : mention.end + 80]
    return bool(_REJECTED_BEFORE.search(before) or _REJECTED_AFTER.match(after.lstrip(" ")))


def has_alternative(text: str, chosen: Mention, others: Sequence[Mention]) -> bool:
    """Whether the text joins `chosen` with another choice ("2 or 5"), so that it chooses none."""
    after = _JOINED_NUMBER.match(text, chosen.end)
    if after is not None and _canonical(after["n"]) != chosen.number:
        return True
    before = _NUMBER_OR.search(text[max(0, chosen.start - 40) : chosen.start])
    if before is not None and _canonical(before["n"]) != chosen.number:
        return True
    earlier = [m for m in others if m.end <= chosen.start]
    if earlier and earlier[-1].number != chosen.number:
        between = text[earlier[-1].end : chosen.start]
        if len(between) < 40 and _JOINED.fullmatch(between):
            return True
    return False


def _other_joined(text: str, match: re.Match[str]) -> bool:
    other = _JOINED_NUMBER.match(text, match.end("n"))
    return other is not None and _canonical(other["n"]) != _canonical(match["n"])


def _canonical(number: str) -> str:
    """A number word or a number as a label would print it; others stay what they are."""
    lowered = number.lower()
    if lowered in _WORDS:
        return str(_WORDS.index(lowered))
    return str(int(float(number))) if float(number).is_integer() else number
