"""Reads the Yes or No and the list of taxa that an answer states (REL-B1).

    >>> names = frozenset({"18", "28", "49"})
    >>> read = read_taxa("**Yes**. Taxa: 18, taxon_28 (block at positions 49-60).", names)
    >>> read.label, sorted(read.taxa)
    ('yes', ['18', '28'])
    >>> read_taxa("I don't know, no pair stands out.", names).label is None
    True

The label is the one of `labels.py`. The *list* follows it at once or after a word such as "taxa" or
"between" (`name_lists.py`).

Decided where the rule leaves room: "None" alone is No; a JSON object may say Yes with a boolean;
taxa without a Yes or No are no answer; a range ("5-9") is not expanded, as it is no name; of two
lists in separate sentences the first counts.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, cast

from rel_batch.tasks.answer import clipped
from rel_batch.tasks.labels import MARKUP, Label, corrections_in, stated_label
from rel_batch.tasks.name_lists import AlignmentNames, NameList, find_list, read_list

_LISTS_AT_ONCE = re.compile(r"[*_`\"'$)}\]]{0,6}\s?[:(–—-]\s{0,3}")
_BOOLEANS: dict[str, Label] = {"true": "yes", "false": "no"}


@dataclass(frozen=True, slots=True)
class TaxaReading:
    """What an answer states.

    Attributes:
        label: "yes" or "no", or None where neither is stated.
        taxa: the listed names that occur in the alignment.
        unknown: the listed names that do not.
        label_over: whether the text goes on after the label, and nothing later corrects a No.
        list_over: whether the text goes on after the list with something else.
        touching: the listed name that ends where the text does, if any.
    """

    label: Label | None
    taxa: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    label_over: bool = True
    list_over: bool = True
    touching: str | None = None


def read_taxa(answer: str, names: Set[str]) -> TaxaReading:
    """The label and the taxa that `answer` states; `names` are those of the alignment."""
    alignment = AlignmentNames(names)
    return (
        _read_exact(answer, alignment)
        or _read_json(clipped(answer), alignment)
        or _read_text(clipped(answer), alignment)
    )


def _read_exact(answer: str, names: AlignmentNames) -> TaxaReading | None:
    """What the `format` constraint admits, and nothing else; its names are taken as they are."""
    # No longer reply in the format starts with this one, so it is complete even where it was cut.
    if answer == "No":
        return TaxaReading("no")
    if not answer.startswith("Yes: "):
        return None
    found: list[str] = []
    at = len("Yes: ")
    while True:
        fitting = (
            name
            for name in names.starting(answer, at)
            if at + len(name) == len(answer) or answer.startswith(", ", at + len(name))
        )
        name = next(fitting, None)
        if name is None:
            return None
        found.append(name)
        at += len(name)
        if at == len(answer):
            return TaxaReading("yes", frozenset(found), list_over=False, touching=name)
        at += len(", ")


def _read_json(answer: str, names: AlignmentNames) -> TaxaReading | None:
    """A JSON object, whole or fenced: its first label, boolean or text, and its list of taxa."""
    inside = answer.partition("```")[2].rpartition("```")[0].removeprefix("json")
    try:
        value: Any = json.loads(inside or answer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    stated = TaxaReading(None)
    lists: dict[str, list[Any]] = {}
    for key, held in cast(dict[str, Any], value).items():
        if isinstance(held, list):
            lists[key] = cast(list[Any], held)
        elif isinstance(held, str) and "tax" in key.lower():
            listed = read_list(held, 0, names)
            lists[key] = [*listed.taxa, *listed.unknown]
        elif stated.label is None and isinstance(held, bool):
            stated = TaxaReading("yes" if held else "no")
        elif stated.label is None and isinstance(held, str):
            label = _BOOLEANS.get(held.lower())
            said = TaxaReading(label) if label else _read_exact(held, names)
            stated = said or _read_text(held, names)
    # The lists that are called taxa, or else the first: others hold positions and the like.
    called = [held for key, held in lists.items() if "tax" in key.lower()]
    items: list[Any] = []
    for held in called or list(lists.values())[:1]:
        for item in held:
            items += cast(list[Any], item) if isinstance(item, list) else [item]
    texts = [str(item).strip() for item in items if isinstance(item, str | int | float)]
    known = {text: names.meant_by(text) for text in texts}
    return TaxaReading(
        stated.label,
        stated.taxa | {name for name in known.values() if name is not None},
        stated.unknown | {text for text, name in known.items() if name is None},
    )


def _read_text(text: str, names: AlignmentNames) -> TaxaReading:
    if text.strip(MARKUP + ".!)}]").lower() == "none":
        return TaxaReading("no", label_over=not text[-1:].isalpha())
    corrections = corrections_in(text)
    stated = stated_label(text, corrections)
    if stated is None:
        return TaxaReading(None)
    later = corrections[bisect.bisect_right(corrections, stated.start()) :]
    if stated["label"].lower() == "no":
        # Taxa of a No are only those that are given as its list: "No: 18, 28".
        at_once = _LISTS_AT_ONCE.match(text, stated.end())
        gives_list = at_once is not None and names.standing(text, at_once.end()) is not None
        listed = read_list(text, at_once.end(), names) if at_once and gives_list else NameList()
        label_over = stated.end() < len(text) and not later
        return TaxaReading("no", listed.taxa, listed.unknown, label_over)
    listed = _list_after(text, stated.end(), later, names)
    return TaxaReading(
        "yes",
        listed.taxa,
        listed.unknown,
        label_over=stated.end() < len(text),
        list_over=listed.is_over(text),
        touching=listed.touching,
    )


def _list_after(text: str, start: int, later: list[int], names: AlignmentNames) -> NameList:
    """The list after the label at `start`; one in a later correction goes before it."""
    ends = [*later, len(text)]
    for index in range(len(ends) - 1, 0, -1):
        if corrected := find_list(text, ends[index - 1], ends[index], names):
            return corrected
    at_once = read_list(text, start, names)
    return at_once or find_list(text, start, ends[0], names)
