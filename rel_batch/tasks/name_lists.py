"""Finds names of an alignment, and lists of them, in text (REL-B1).

    >>> names = AlignmentNames(frozenset({"18", "28", "49"}))
    >>> read_list("18, taxon_28 and 49% of the rest", 0, names).taxa == {"18", "28"}
    True

A list ends where something else begins: counts, alignment positions and percentages are not taxa.
Quotes, bullets, markup and a word such as "taxon" before a name do not matter.

Surprising: names have any shape (spaces, quotes, commas, brackets), so at each place a name is
looked for before anything is taken for markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass

KIND = r"(?:tax(?:on|a)|leaf|leaves|tips?|species|seq(?:uence)?s?|samples?|nodes?)"
_PREFIX = re.compile(rf"{KIND}[\s_#:-]{{0,2}}|[>#]", re.IGNORECASE)
_INTRO = re.compile(
    rf"(?:[\s:;.,!*_`\"'$()\[\]{{}}\\>–—-]|(?:[0-9]{{1,4}}\s)?{KIND}\b|\\?text(?:bf)?(?=\{{)"
    r"|\b(?:the|these|following|likely|homoplas\w+|convergent|involved|involving|names?|are|is"
    r"|include|includes|including)\b)",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(
    r"[\s,;&/|+*_`\"'$\\{}()\[\]•]|[-–—](?=\s)|(?:and|plus|as well as)\b|\\?text(?:bf)?(?=\{)",
    re.IGNORECASE,
)
_GROUP = re.compile(r"(?:group|pair|set|cluster|clade)\s?\w{0,3}\s?[:=(-]", re.IGNORECASE)
_NUMBERED = re.compile(r"[0-9]{1,3}[.)][ \t]{1,3}[*_`]{0,2}")
_COUNTED = re.compile(
    rf" ?(?:%|percent|bp\b|nt\b|{KIND}\b|pairs?\b|groups?\b|blocks?\b|columns?\b|positions?\b"
    r"|sites?\b|motifs?\b|nucleotides?\b|times\b|other\b|distant)|\.[0-9]|[–-]\s?[0-9]",
    re.IGNORECASE,
)
_POSITION = re.compile(
    r"\b(?:positions?|columns?|sites?|blocks?|rows?|length|around|about|at|to|from|than|all|least"
    r"|approximately|score|total)[\s:~≈]{0,3}$",
    re.IGNORECASE,
)
_ANCHOR = re.compile(
    rf"\b(?:{KIND}|between|among|involv\w*|includ\w*|by|pairs?|groups?|are)\b|:", re.IGNORECASE
)
_OTHERS = re.compile(
    r"\b(?:not|no|others?|remaining|rest|unlike|except|differ\w*|whereas|sister|number|count"
    r"|total)\b|n't\b",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"[^\s,;()\[\]{}*`\"'$|&]{1,80}")


class AlignmentNames:
    """The names of an alignment, found in a text the longest first."""

    def __init__(self, names: Set[str]) -> None:
        self.all = names
        self.have_letters = any(char.isalpha() for name in names for char in name)
        self._lengths = sorted({len(name) for name in names}, reverse=True)

    def starting(self, text: str, at: int) -> Iterator[str]:
        """Every name that `text` goes on with at `at`."""
        for length in self._lengths:
            piece = text[at : at + length]
            if len(piece) == length and piece in self.all:
                yield piece

    def standing(self, text: str, at: int) -> str | None:
        """The name that stands at `at` as a word, and not as a number of something."""
        for name in self.starting(text, at):
            end = at + len(name)
            if name[-1].isalnum() and (text[end : end + 1].isalnum() or text[end : end + 1] == "_"):
                continue
            if not (name.isdigit() and _COUNTED.match(text, end)):
                return name
        return None

    def meant_by(self, item: str) -> str | None:
        """The name that a whole item means, with or without a word such as "taxon" before it."""
        if item in self.all:
            return item
        prefix = _PREFIX.match(item)
        rest = item[prefix.end() :] if prefix else item
        return rest if rest in self.all else None


@dataclass(frozen=True, slots=True)
class NameList:
    """The names that a list holds, in the alignment or not.

    `end` is where the last item ends; `touching` is the item that ends where the text does.
    """

    taxa: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    end: int = 0
    touching: str | None = None

    def __bool__(self) -> bool:
        return bool(self.taxa or self.unknown)

    def is_over(self, text: str) -> bool:
        """Whether the text goes on after the list with something that is not part of it."""
        at = self.end
        while match := _SEPARATOR.match(text, at):
            at = match.end()
        return at < len(text)


def read_list(text: str, at: int, names: AlignmentNames) -> NameList:
    """The list that starts at `at`, after its introduction ("taxa involved:"); it may be empty."""
    while names.standing(text, at) is None:
        intro = _INTRO.match(text, at) or _GROUP.match(text, at)
        if intro is None:
            break
        at = intro.end()
    taxa: set[str] = set()
    unknown: set[str] = set()
    end, item, divided = at, "", True
    while at < len(text):
        bullet = _NUMBERED.match(text, at) if at == 0 or text[at - 1] == "\n" else None
        if bullet and _name_at(text, bullet.end(), names):
            at = bullet.end()
        if found := _name_at(text, at, names):
            item, end = found
            taxa.add(item)
            at, divided = end, False
        elif match := _SEPARATOR.match(text, at) or _GROUP.match(text, at):
            if match[0] == "(" and not divided:
                break  # a remark on the item before it
            divided = divided or match[0] in ",;\n/&" or len(match[0]) > 1
            at = match.end()
        elif divided and (token := _unknown_at(text, at, names)):
            item, end = token, at + len(token)
            unknown.add(token)
            at, divided = end, False
        else:
            break
    touching = item if item and end == len(text) else None
    return NameList(frozenset(taxa), frozenset(unknown), end, touching)


def find_list(text: str, start: int, stop: int, names: AlignmentNames) -> NameList:
    """The first list in `text[start:stop]` that a word such as "taxa" or "between" introduces."""
    seen = start
    for anchor in _ANCHOR.finditer(text, start, stop):
        for at in range(max(seen, anchor.end()), min(stop, anchor.end() + 100)):
            seen = at
            if text[at] in ".;\n":
                break
            if text[at - 1].isalnum() or text[at - 1] == "_" or not _name_at(text, at, names):
                continue
            sentence = re.split("[.;\n]", text[max(start, at - 150) : at])[-1]
            if not (_OTHERS.search(sentence) or _POSITION.search(sentence[-30:])):
                return read_list(text, at, names)
    return NameList(end=stop)


def _name_at(text: str, at: int, names: AlignmentNames) -> tuple[str, int] | None:
    """The name at `at`, with or without a word such as "taxon" before it, and where it ends."""
    if name := names.standing(text, at):
        return name, at + len(name)
    prefix = _PREFIX.match(text, at)
    if prefix and (name := names.standing(text, prefix.end())):
        return name, prefix.end() + len(name)
    return None


def _unknown_at(text: str, at: int, names: AlignmentNames) -> str | None:
    """A token that has the look of a name but is none of this alignment."""
    match = _TOKEN.match(text, at)
    token = match[0].rstrip(".:!?") if match else ""
    end = at + len(token)
    if not token or not any(char.isalnum() for char in token):
        return None
    if token.isdigit():
        return None if _COUNTED.match(text, end) else token
    if any(char.isdigit() or char == "_" for char in token):
        return None if re.match(r"\s?(?:bp|nt|%)", text[end : end + 4]) else token
    ends_item = re.match(r"[\"'*`]{0,2}\s?(?:$|[,;.\n)\]]|and\b)", text[end : end + 8])
    return token if names.have_letters and ends_item else None
