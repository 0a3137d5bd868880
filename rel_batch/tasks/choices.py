"""Reads which of the printed choices an answer states (REL-A1 to REL-A4).

    >>> panels = [(1.0, 2.0)] + [(9.0, float(i)) for i in range(7)]
    >>> read_choice("Answer 2. Wait, the correct choice is Answer 1.", 0, panels, truncated=False)
    1
    >>> read_choice("It is either 5 or Answer 4.", 0, panels, truncated=False)
    'undecided'

The rule: the one choice stated last counts. A *statement* says that a choice is the answer ("the
answer is 5", "index: 5", a boxed 5, a first or last line that is only "Answer 5", "option 5 is
correct"); a *mention* only names one ("Answer 5 matches"). Statements go before mentions, what
follows a correction ("wait", "actually") goes before what it corrects, and a choice that its
own sentence rejects ("Answer 2 fails", "not Answer 2") is neither. Two choices joined as
alternatives are undecided. Other numbers (rows, cells, sums, percentages) are no choices.

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
from dataclasses import dataclass
from typing import Literal

from rel_batch.tasks.answer import clipped

Failure = Literal["no_choice", "undecided", "out_of_range", "truncated"]

_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_TUPLE_MARK = "\ue000"  # stands for a tuple of numbers, so that none of them is taken for a choice

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
    rf"\s?(?:because|since|as)\b|\s?\(|\s?[:–-]?\s?{_TUPLE_MARK}", re.IGNORECASE
)

_CORRECTION = re.compile(
    r"\b(?:wait|actually|correction|scratch\sthat|on\ssecond\sthought|on\sreflection|oops|sorry"
    r"|apologies|hold\son|i\smade\san?\s(?:mistake|error)|i\smean|or\srather"
    r"|let\sme\s(?:re|double|check|verify))|\bno,",
    re.IGNORECASE,
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


@dataclass(frozen=True, slots=True)
class _Mention:
    """A choice named in the text: where its words start, where its number ends, which it is."""

    start: int
    end: int
    number: str
    states: bool


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
    mentions = _mentions(text)
    chosen = _stated_last(text, mentions, truncated=truncated)
    if chosen is None:
        stated = _stated_values(text, tuples, choices)
        return stated if stated is not None else ("truncated" if truncated else "no_choice")
    if truncated and not _OVER.match(text, chosen.end):
        return "truncated"
    if _is_undecided(text, chosen, mentions):
        return "undecided"
    return labels.get(_canonical(chosen.number), "out_of_range")


def _plain(answer: str) -> tuple[str, list[tuple[float, ...]]]:
    """The text without markup, white space in single characters, tuples taken out."""
    text = answer.replace(_TUPLE_MARK, " ").replace("’", "'")
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
        return _TUPLE_MARK

    return _TUPLE.sub(taken_out, text), tuples


def numbers_in(text: str) -> tuple[float, ...]:
    """All decimal numbers of a text, in order."""
    return tuple(float(number) for number in re.findall(_DECIMAL, text))


def _canonical(number: str) -> str:
    """A number word or a number as a label would print it; others stay what they are."""
    lowered = number.lower()
    if lowered in _WORDS:
        return str(_WORDS.index(lowered))
    return str(int(float(number))) if float(number).is_integer() else number


def _mentions(text: str) -> list[_Mention]:
    """Every choice that the text names and does not reject, in order."""
    found: dict[int, _Mention] = {}

    def add(match: re.Match[str], *, states: bool) -> None:
        found.setdefault(
            match.start("n"), _Mention(match.start(), match.end("n"), match["n"], states)
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
        and re.match(rf"\s?[:.)]\s?{_TUPLE_MARK}", text[match.end("n") :][:4]) is not None
    )


def _is_rejected(text: str, mention: _Mention) -> bool:
    before = text[max(0, mention.start - 40) : mention.start]
    after = text[mention.end : mention.end + 80]
    return bool(_REJECTED_BEFORE.search(before) or _REJECTED_AFTER.match(after.lstrip(" ")))


def _stated_last(text: str, mentions: list[_Mention], *, truncated: bool) -> _Mention | None:
    """The last statement, else the last mention, of the last stretch that has one."""
    corrections = [match.start() for match in _CORRECTION.finditer(text)]
    if not mentions:
        return None
    later = bisect.bisect_right(corrections, mentions[-1].start)
    start = corrections[later - 1] if later else 0
    stretch = [mention for mention in mentions if mention.start >= start]
    statements = [mention for mention in stretch if mention.states]
    if truncated:
        return statements[-1] if statements and later == len(corrections) else None
    return (statements or stretch)[-1]


def _other_joined(text: str, match: re.Match[str]) -> bool:
    other = _JOINED_NUMBER.match(text, match.end("n"))
    return other is not None and _canonical(other["n"]) != _canonical(match["n"])


def _is_undecided(text: str, chosen: _Mention, mentions: list[_Mention]) -> bool:
    number = _canonical(chosen.number)
    after = _JOINED_NUMBER.match(text, chosen.end)
    if after is not None and _canonical(after["n"]) != number:
        return True
    before = _NUMBER_OR.search(text[max(0, chosen.start - 40) : chosen.start])
    if before is not None and _canonical(before["n"]) != number:
        return True
    earlier = [m for m in mentions if m.end <= chosen.start]
    if earlier and _canonical(earlier[-1].number) != number:
        between = text[earlier[-1].end : chosen.start]
        if len(between) < 40 and _JOINED.fullmatch(between):
            return True
    return _DOUBT.search(text, chosen.end) is not None


def _stated_values(
    text: str, tuples: list[tuple[float, ...]], choices: Sequence[tuple[float, ...]]
) -> int | None:
    """The one choice whose printed numbers are all that the answer says."""
    if not tuples or not _SAYS_PANEL.fullmatch(text.replace(_TUPLE_MARK, " ")):
        return None
    values = tuple(number for numbers in tuples for number in numbers)
    equal = [index for index, choice in enumerate(choices) if choice == values]
    return equal[0] if len(equal) == 1 else None
