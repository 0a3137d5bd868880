"""Replies that need no rule: what each task's surface gives away.

Each shortcut reads a record's question as a model would, and writes a reply in the task's
format; it never looks at the gold. Its score is what a model's is to be read against: one that
beats chance by much says that the instances, not the model, do the reasoning.

    >>> [shortcut.name for shortcut in SHORTCUTS["REL-C3"]]
    ['empty reply', 'echo of the given molecules']

Surprising: some shortcuts are the rule itself, or its converse (`bears_on_rule`): on REL-A1 the
left neighbour is the answer. They are measured too, and marked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Record = Mapping[str, Any]
Panel = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A way to reply without the rule.

    `reply` gives the reply to a record; what is left open (ties) is drawn from the generator.
    `bears_on_rule` says that the shortcut is the task's rule, or asks for its opposite.
    """

    name: str
    reply: Callable[[Record, Random], str]
    bears_on_rule: bool = False


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A question of REL-A: the panels in reading order, less the last, and the choices."""

    panels: list[Panel]
    choices: list[Panel]
    first_label: int

    @property
    def width(self) -> int:
        return isqrt(len(self.panels) + 1)

    @property
    def row(self) -> list[Panel]:
        return self.panels[len(self.panels) - self.width + 1 :]

    def column(self, attribute: int) -> list[float]:
        return [panel[attribute] for panel in self.panels]


# The score of a choice: the shortcut takes one of the choices with the highest.
_Score = Callable[[_Matrix, Panel], float]


def _read_matrix(record: Record) -> _Matrix:
    metadata = record["metadata"]
    return _Matrix(
        [_flatten(panel) for panel in metadata["panels"]],
        [_flatten(choice) for choice in metadata["choices"]],
        1 if "(1-8)" in record["question"] else 0,
    )


def _flatten(panel: Iterable[Iterable[float]]) -> Panel:
    return tuple(value for row in panel for value in row)


def _choosing(score: _Score) -> Callable[[_Matrix, Random], int]:
    def choose(matrix: _Matrix, rng: Random) -> int:
        scores = [score(matrix, choice) for choice in matrix.choices]
        best = [i for i, value in enumerate(scores) if value == max(scores)]
        return rng.choice(best)

    return choose


def _replying(choose: Callable[[_Matrix, Random], int]) -> Callable[[Record, Random], str]:
    def reply(record: Record, rng: Random) -> str:
        matrix = _read_matrix(record)
        return str(matrix.first_label + choose(matrix, rng))

    return reply


def _attribute_majority(matrix: _Matrix, choice: Panel) -> float:
    return sum(other[i] == value for other in matrix.choices for i, value in enumerate(choice))


def _in_context(matrix: _Matrix, choice: Panel) -> float:
    seen = {value for panel in matrix.panels for value in panel}
    return sum(value in seen for value in choice)


def _in_row(matrix: _Matrix, choice: Panel) -> float:
    seen = {value for panel in matrix.row for value in panel}
    return sum(value in seen for value in choice)


def _under_attribute(matrix: _Matrix, choice: Panel) -> float:
    return sum(value in matrix.column(i) for i, value in enumerate(choice))


def _count_under_attribute(matrix: _Matrix, choice: Panel) -> float:
    return sum(matrix.column(i).count(value) for i, value in enumerate(choice))


def _near_left(matrix: _Matrix, choice: Panel) -> float:
    return -_distance(choice, matrix.panels[-1])


def _near_above(matrix: _Matrix, choice: Panel) -> float:
    return -_distance(choice, matrix.panels[-matrix.width])


def _distance(one: Panel, other: Panel) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


def _size(matrix: _Matrix, choice: Panel) -> float:
    del matrix
    return sum(choice)


def _seen_panel(matrix: _Matrix, choice: Panel) -> float:
    return choice in matrix.panels


def _negated(score: _Score) -> _Score:
    return lambda matrix, choice: -score(matrix, choice)


_ALGEBRA: dict[str, tuple[_Score, str, str]] = {
    # What is scored: the names of taking the highest and the lowest.
    "majority": (_attribute_majority, "majority among the choices", "minority among the choices"),
    "context": (_in_context, "values in the context", "values not in the context"),
    "row": (_in_row, "values in the row", "values not in the row"),
    "attribute": (_under_attribute, "values under the attribute", "values not under the attribute"),
    "count": (
        _count_under_attribute,
        "commonest under the attribute",
        "rarest under the attribute",
    ),
    "left": (_near_left, "nearest to the left neighbour", "farthest from the left neighbour"),
    "above": (_near_above, "nearest to the upper neighbour", "farthest from the upper neighbour"),
    "size": (_size, "largest", "smallest"),
    "panel": (_seen_panel, "a panel of the context", "no panel of the context"),
}
# A1: the row repeats one panel. A3: the row lacks the value, which all other rows have.
_RULES = {"REL-A1": {"row", "left", "panel"}, "REL-A3": {"row", "count"}}


def _algebra(task: str) -> tuple[Shortcut, ...]:
    def random(matrix: _Matrix, rng: Random) -> int:
        return rng.randrange(len(matrix.choices))

    found = [Shortcut("random", _replying(random))]
    for feature, (score, highest, lowest) in _ALGEBRA.items():
        is_rule = feature in _RULES.get(task, ())
        found.append(Shortcut(highest, _replying(_choosing(score)), is_rule))
        found.append(Shortcut(lowest, _replying(_choosing(_negated(score))), is_rule))
    return tuple(found)


# Columns that unrelated sequences rarely share in a row, and the identity they stay below.
_CONSPICUOUS_RUN, _UNLIKE = 9, 0.5

_SEQUENCE = re.compile(r"^[ \t]*>(\S+)\s+([ACGTacgt]+)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Every pair of an alignment's sequences, in their order.

    `lengths` and `starts` are of the longest run of columns in which the two agree, the first of
    equally long ones; `alike` and `columns` count columns that agree, and columns that both have.
    """

    sequences: Mapping[str, str]
    first: Ints
    second: Ints
    lengths: Ints
    starts: Ints
    alike: Ints
    columns: Ints


# Both shortcuts read the same alignment one after the other.
@lru_cache(maxsize=1)
def _compare_sequences(question: str) -> _Pairs:
    sequences: dict[str, str] = dict(_SEQUENCE.findall(question))
    sizes = np.array([len(sequence) for sequence in sequences.values()])
    # What a shorter sequence lacks is like nothing.
    rows = np.repeat(-np.arange(1, len(sizes) + 1)[:, None], max(sizes), axis=1)
    for row, sequence in zip(rows, sequences.values(), strict=True):
        row[: len(sequence)] = np.frombuffer(sequence.encode(), np.uint8)
    first, second = np.triu_indices(len(sizes), 1)
    run, lengths, starts, alike = (np.zeros(len(first), np.int64) for _ in range(4))
    for column, letters in enumerate(rows.T):
        same = letters[first] == letters[second]
        run = (run + 1) * same
        longer = run > lengths
        lengths[longer] = run[longer]
        starts[longer] = column + 1 - run[longer]
        alike += same
    columns = np.minimum(sizes[first], sizes[second])
    return _Pairs(sequences, first, second, lengths, starts, alike, columns)


def _longest_run(record: Record, rng: Random) -> str:
    """The taxa that share the longest run of identical columns, as if that were homoplasy."""
    del rng
    pairs = _compare_sequences(record["question"])
    longest = int(np.argmax(pairs.lengths))
    start, length = int(pairs.starts[longest]), int(pairs.lengths[longest])
    names = list(pairs.sequences)
    run = pairs.sequences[names[pairs.first[longest]]][start : start + length]
    taxa = [name for name in names if pairs.sequences[name].startswith(run, start)]
    return "Yes: " + ", ".join(taxa)


def _unlike_run(record: Record, rng: Random) -> str:
    """The same among sequences that are unlike elsewhere: their likeness stands for the tree."""
    del rng
    pairs = _compare_sequences(record["question"])
    unlike = pairs.alike - pairs.lengths < _UNLIKE * (pairs.columns - pairs.lengths)
    lengths = np.where(unlike, pairs.lengths, 0)
    if max(lengths) < _CONSPICUOUS_RUN:
        return "No"
    longest = lengths == max(lengths)
    found = {*pairs.first[longest], *pairs.second[longest]}
    return "Yes: " + ", ".join(name for i, name in enumerate(pairs.sequences) if i in found)


_MOLECULE = re.compile(r"^\d+\. (\S+)$", re.MULTILINE)
_ATOM = re.compile(r"Cl|Br|[BCNOFPSIbcnops]")


def _molecules(record: Record) -> list[str]:
    """The numbered molecules of a question of REL-C1 to C3."""
    return _MOLECULE.findall(record["question"].partition("SMILES:")[2])


def _same_heavy_atoms(record: Record, rng: Random) -> str:
    del rng
    counts = {len(_ATOM.findall(smiles)) for smiles in _molecules(record)}
    return "<Yes>" if len(counts) == 1 else "<No>"


def _same_elements(record: Record, rng: Random) -> str:
    """All that can be counted in the strings without knowing a hydrogen."""
    del rng
    counts = {
        frozenset(Counter(map(str.capitalize, _ATOM.findall(smiles))).items())
        for smiles in _molecules(record)
    }
    return "<Yes>" if len(counts) == 1 else "<No>"


def _echo(record: Record, rng: Random) -> str:
    del rng
    return "\n".join(f"<smiles>{smiles}</smiles>" for smiles in _molecules(record))


def _shortest_molecule(record: Record, rng: Random) -> str:
    del rng
    return f"<smiles>{min(_molecules(record), key=len)}</smiles>"


def _whole_molecules(record: Record, rng: Random) -> str:
    """Every molecule as its own motif: right where the molecules' groups sum to the target."""
    del rng
    listed = record["question"].partition("MOLECULES:")[2].partition("STEP-BY-STEP")[0]
    molecules = _MOLECULE.findall(listed)
    lines = [f"<indices>{','.join(map(str, range(len(molecules))))}</indices>"]
    lines += [f"<motif_{i}>{smiles}</motif_{i}>" for i, smiles in enumerate(molecules)]
    return "\n".join(lines)


def _always(reply: str) -> Callable[[Record, Random], str]:
    def constant(record: Record, rng: Random) -> str:
        del record, rng
        return reply

    return constant


def _one_of(*replies: str) -> Callable[[Record, Random], str]:
    return lambda _record, rng: rng.choice(replies)


_EMPTY = Shortcut("empty reply", _always(""))

SHORTCUTS: Mapping[str, tuple[Shortcut, ...]] = {
    **{task: _algebra(task) for task in ("REL-A1", "REL-A2", "REL-A3", "REL-A4")},
    "REL-B1": (
        Shortcut("always No", _always("No")),
        Shortcut("longest identical run", _longest_run),
        Shortcut("longest run of unlike sequences", _unlike_run, bears_on_rule=True),
    ),
    "REL-C1": (
        Shortcut("random", _one_of("<Yes>", "<No>")),
        Shortcut("same number of heavy atoms", _same_heavy_atoms),
        Shortcut("same heavy atoms", _same_elements),
    ),
    "REL-C2": (
        _EMPTY,
        Shortcut("commonest motif (benzene)", _always("<smiles>c1ccccc1</smiles>")),
        Shortcut("commonest motif (anisole)", _always("<smiles>COc1ccccc1</smiles>")),
        Shortcut("shortest molecule", _shortest_molecule),
    ),
    "REL-C3": (_EMPTY, Shortcut("echo of the given molecules", _echo)),
    "REL-C4": (_EMPTY, Shortcut("echo of the molecules", _whole_molecules)),
}
