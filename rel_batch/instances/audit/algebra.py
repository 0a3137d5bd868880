"""REL-A: for which of the eight choices does the rule hold?

Each number of a panel (an attribute) follows the rule on its own, in every row: A1 is constant, A2
counts by a step that all rows share, A3 permutes one set, A4 ends with the sum of the others or
starts with it. The older format prints panels of three rows, to which the rules apply likewise: A1
and A2 from panel to panel (A2 stops at 0), A3 and A4 within each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

from rel_batch.instances.audit.findings import Findings
from rel_batch.tasks.choices import numbers_in
from rel_batch.tasks.task import RawRecord

_ROW = re.compile(r"row [0-9]{1,9}:([^;\n]*)")
_CELL = re.compile(r"\([^()]*\)")
_PANEL = re.compile(r"^Panel [0-9]{1,9}:", re.MULTILINE)
_ANSWER = re.compile(r"^Answer [0-9]{1,9}:", re.MULTILINE)

Panel = tuple[float, ...]
Lines = list[list[float]]


@dataclass(frozen=True, slots=True)
class _Matrix:
    panels: list[Panel]
    choices: list[Panel]
    is_old: bool


def audit_matrix(record: RawRecord) -> Findings:
    """Whether the stored choice is the one that the rule asks for, and the only one."""
    matrix = _read(record.question)
    fitting = [i for i in range(len(matrix.choices)) if _fits(record.task, matrix, i)]
    findings: list[str] = []
    if not fitting:
        findings.append("no_choice_fits")
    elif len(fitting) > 1:
        findings.append("several_choices_fit")
    if fitting and record.answer["target"] not in fitting:
        findings.append("wrong_label")
    return Findings(tuple(findings), detail={"fitting": fitting} if findings else {})


def _read(question: str) -> _Matrix:
    shown, _, printed = question.partition("Answer set:")
    cells = [cell for row in _ROW.findall(shown) for cell in _CELL.findall(row)]
    panels = [numbers_in(text) for text in cells or _PANEL.split(shown)[1:]]
    choices = [numbers_in(text) for text in _ANSWER.split(printed)[1:]]
    return _Matrix(panels, choices, is_old=not cells)


def _fits(task: str, matrix: _Matrix, index: int) -> bool:
    panels = [*matrix.panels, matrix.choices[index]]
    if len({len(panel) for panel in panels}) != 1:
        return False
    if matrix.is_old:
        if task in ("REL-A1", "REL-A2"):
            holds = _constant if task == "REL-A1" else _falls_to_zero
            return all(holds([list(values)]) for values in zip(*panels, strict=True))
        width = isqrt(len(panels[0]))
        lines = [list(p[i : i + width]) for p in panels for i in range(0, len(p), width)]
        return _RULES[task](lines)
    width = isqrt(len(panels))
    return all(
        _RULES[task]([list(values[i : i + width]) for i in range(0, len(values), width)])
        for values in zip(*panels, strict=True)
    )


def _constant(lines: Lines) -> bool:
    return all(len(set(line)) == 1 for line in lines)


def _progression(lines: Lines) -> bool:
    return len({b - a for line in lines for a, b in pairwise(line)}) == 1


def _falls_to_zero(lines: Lines) -> bool:
    step = lines[0][1] - lines[0][0]
    return all(b == max(0.0, a + step) for line in lines for a, b in pairwise(line))


def _permutation(lines: Lines) -> bool:
    return len({tuple(sorted(line)) for line in lines}) == 1


def _row_sum(lines: Lines) -> bool:
    def is_sum(line: Sequence[float]) -> bool:
        return line[-1] == sum(line[:-1])

    def is_difference(line: Sequence[float]) -> bool:
        return line[0] == sum(line[1:])

    return all(map(is_sum, lines)) or all(map(is_difference, lines))


_RULES: dict[str, Callable[[Lines], bool]] = {
    "REL-A1": _constant,
    "REL-A2": _progression,
    "REL-A3": _permutation,
    "REL-A4": _row_sum,
}
