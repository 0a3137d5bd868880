"""The tags of the chemistry prompts: what a tagged reply may be, and which answer it holds.

    >>> text = "Format: <smiles>YOUR_SMILES_HERE</smiles>. So: <smiles> CCO </smiles>"
    >>> [tag.value for tag in find_tags("smiles", text)]
    ['CCO']

Where a reply tags several answers and one is asked for, the one stated last counts (`decide`). A
tag *states* its answer if it is alone on its line or follows a word such as "answer" or
"therefore"; other tags only mention theirs. Tags joined by "or" are alternatives and say nothing,
which also covers an echo of the prompt's "<Yes> or <No>".

Surprising: a closing tag may be missing at the end of a line. What the prompt shows in its place
for an answer (`YOUR_SMILES_HERE`) and an empty tag are no answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from rel_batch.constraints import Chars, Constraint, Expression, Kind, Repeat, Seq, Text
from rel_batch.constraints.json_values import JsonValue, json_string
from rel_batch.constraints.molecules import Molecule
from rel_batch.constraints.smiles_grammar import (
    AROMATIC_SYMBOLS,
    ELEMENTS,
    SMILES,
    SMILES_RULES,
)

# Every character of OpenSMILES: elements, aromatic symbols, and what stands between them.
_SMILES_CHARS = "".join(
    sorted({*"".join(ELEMENTS), *"".join(AROMATIC_SYMBOLS), *"0123456789@+-[]()=#$:/\\.%*"})
)
# Without an upper bound: a bound of 512 costs 2 to 6 ms a step in xgrammar and guidance, and 5 s
# of compilation in xgrammar, where this run costs 10 microseconds. `max_tokens` bounds the reply.
SMILES_RUN: Expression = Repeat(Chars(_SMILES_CHARS), 1, None)

# The same in JSON, where a backslash would need an escape and no SMILES of REL has one. Bounded,
# because this rung is; the longest gold has 113 characters.
JSON_SMILES: JsonValue = json_string(_SMILES_CHARS.replace("\\", ""), 1, 200)
SMILES_KINDS: tuple[Kind, ...] = (
    *("none", "format", "json", "regex", "syntax", "molecule", "formula"),
)

_PLACEHOLDER = "your_smiles_here"
_MARKUP = " \t\r\n`\"'"
_JOINED = re.compile(r"[\s\W]{0,20}(?:\bor\b|/|\|)[\s\W]{0,20}", re.IGNORECASE)
_APART = re.compile(r"[\s\W]*")
_LINE_STARTS = re.compile(r"(?:^|\n)[\s>*_`#\-\d.]{0,20}$")
_LINE_ENDS = re.compile(r"[ \t*_`.]{0,20}(?:\n|$)")
_CUE = re.compile(
    r"\b(?:answer|conclusion|conclude|result|therefore|thus|hence|so|final|finally|actually"
    r"|correction|instead)\b"
    r"(?:(?!\b(?:if|would|should|could|whether|either|not)\b)[^\n<]){0,60}$",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(?:not|never|n't)[\s*`]{0,5}$", re.IGNORECASE)
_LOOK_BEHIND = 80

# A token that looks like SMILES: atoms outside brackets are of the organic subset.
_BARE_SMILES = re.compile(
    r"(?:Cl|Br|[BCNOPSFIbcnops*]|\[[^\[\]\s]{1,20}\]|[-=#$:/\\.()]|%[0-9]{2}|[0-9])+"
)
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?[0-9]{1,4}[.):])\s+")
_JSON_STRING = re.compile(r'"((?:[^"\\\n]|\\.){1,2000})"(\s*:)?')
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\(?:text|texttt|mathrm|mathtt)\s*\{)?([^{}\s]{1,2000})")
_NAMES = ("is", "are", ":", "=", "→")


@dataclass(frozen=True, slots=True)
class Tag:
    """An answer in a text: its value, and where it starts and ends with its tags."""

    value: str
    start: int
    end: int


def around_smiles(kind: Kind, envelope: Callable[[Expression], Expression]) -> Constraint:
    """The constraint of a kind whose SMILES stand in an envelope. Raises ValueError for a kind
    that says nothing of SMILES."""
    match kind:
        case "format" | "regex":
            return Constraint(kind, envelope(SMILES_RUN))
        case "syntax":
            return Constraint(kind, envelope(SMILES), SMILES_RULES)
        case "molecule":
            return Constraint(kind, envelope(Molecule()))
        case _:
            raise ValueError(f"no constraint {kind!r} around SMILES")


def one_smiles(smiles: Expression) -> Expression:
    """`smiles` in its tag."""
    return Seq((Text("<smiles>"), smiles, Text("</smiles>")))


def find_tags(name: str, text: str, *, cut: bool = False) -> list[Tag]:
    """The tags `<name>…</name>` that hold an answer, in order; `name` is read in any case.

    `cut` says that the text was cut: then a last tag that is open on its last line holds none.
    """
    found: list[Tag] = []
    for match in re.finditer(rf"<{name}>([^<]*)(</{name}\s*>)?", text, re.IGNORECASE):
        content = match[1].strip()
        if match[2] is None:
            content, newline, _ = match[1].lstrip().partition("\n")
            if cut and not newline and match.end() == len(text):
                continue
        value = content.strip(_MARKUP)
        if value and value.casefold() != _PLACEHOLDER:
            found.append(Tag(value, match.start(), match.end()))
    return found


def decide(
    text: str, tags: Sequence[Tag], same: Callable[[str], Hashable], *, cut: bool = False
) -> Tag | None:
    """The one tag that holds the answer; None where no tag does or they contradict each other.

    `same` gives equal keys for values that mean the same. `cut` says that the text was cut: then a
    tag must state its answer, as one that only mentions it may have been on the way to another.
    """
    keys = [same(tag.value) for tag in tags]
    alternatives = {
        side
        for first in range(len(tags) - 1)
        for side in (first, first + 1)
        if keys[first] != keys[first + 1] and _between(text, tags, first, _JOINED)
    }
    kept = [
        i
        for i, tag in enumerate(tags)
        if i not in alternatives and not _DENIED.search(_before(text, tag))
    ]
    if not cut and len({keys[i] for i in kept}) == 1:
        return tags[kept[-1]]
    alone = {
        i
        for i in kept
        if _LINE_STARTS.search(_before(text, tags[i])) and _LINE_ENDS.match(text, tags[i].end)
    }
    stated = [i for i in kept if i in alone or _CUE.search(_before(text, tags[i]))]
    if not stated:
        return None
    last = stated[-1]
    # What directly follows another answer is an alternative to it, not a second thought.
    if alone >= {last - 1, last} and keys[last - 1] != keys[last]:
        return None if _between(text, tags, last - 1, _APART) else tags[last]
    return tags[last]


def _before(text: str, tag: Tag) -> str:
    return text[max(0, tag.start - _LOOK_BEHIND) : tag.start]


def _between(text: str, tags: Sequence[Tag], first: int, pattern: re.Pattern[str]) -> bool:
    gap = text[tags[first].end : tags[first + 1].start]
    return len(gap) <= _LOOK_BEHIND and pattern.fullmatch(gap) is not None


def bare_smiles(text: str) -> list[str]:
    """The tokens that look like SMILES in a reply without tags, in order.

    Looked for in `\\boxed{}`, among the values of JSON, and as what is alone on its line (a list
    item too) or ends a line after "is", ":" or "=". A token of letters alone may be a word.
    """
    boxed = _BOXED.findall(text)
    if boxed:
        return [token for token in boxed if _BARE_SMILES.fullmatch(token)]
    body = re.sub(r"^```\w*|```$", "", text.strip()).strip()
    if body.startswith(("{", "[")):
        strings = [m[1].replace("\\\\", "\\") for m in _JSON_STRING.finditer(body) if not m[2]]
        return [token for token in strings if _BARE_SMILES.fullmatch(token)]
    found: list[str] = []
    for line in body.splitlines():
        pieces = re.split(r"[,;]\s*", _BULLET.sub("", line).strip(_MARKUP + "*."))
        words = line.split()
        if all(_BARE_SMILES.fullmatch(piece) for piece in pieces):
            found += pieces
        elif len(words) > 1 and words[-2].rstrip("*").lower().endswith(_NAMES):
            named = words[-1].strip(_MARKUP + "*.!")
            found += [named] if _BARE_SMILES.fullmatch(named) else []
    return found
