"""REL-A1 to A4: number matrices of any size n x n whose last panel is missing.

Each of the three numbers of a panel (an attribute) follows the task's rule on its own: A1 a row
is constant, A2 a row counts by a step that all rows share, A3 every row permutes one set,
A4 the last number of a row is the sum of the others, or the first less all between.

The eight choices are all combinations of the right value and one distractor per attribute, so
counting values among the choices tells nothing. A distractor is drawn so that what is cheap to
see does not tell it from the right value: both occur in the context, or under the attribute,
or neither does, and each is as likely as the other to be the nearer one to a neighbour. What
remains cheap is the rule itself: the left neighbour and the row on A1, the value that the row
lacks on A3. `benchmarks/shortcuts.py` measures it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from random import Random
from typing import Any

from rel_batch.errors import ConfigError
from rel_batch.instances.generate.draft import Draft, Setting, fixed_rc, no_hold

MIN_SIZE, MAX_SIZE = 3, 30
_ATTRIBUTES = 3
_PROMPT = "Complete the Raven's progressive matrix. Only return the missing panel index (0-7)!\n"


@dataclass(frozen=True)
class _Column:
    """One attribute of the matrix: n rows of n numbers, the last of which is the gold."""

    rows: list[list[int]]
    distractor: int
    certificate: dict[str, Any]

    @property
    def gold(self) -> int:
        return self.rows[-1][-1]

    def context(self) -> set[int]:
        *above, last = self.rows
        return {value for row in [*above, last[:-1]] for value in row}


def settings(
    task: str, rc: Iterable[int] | None, size: int | None, hold: str | None
) -> list[Setting]:
    """One setting per RC. On A3 and A4 the RC is n; on A1 and A2 it is 2 and `size` is n."""
    if task in ("REL-A1", "REL-A2"):
        found = [Setting(level, 3 if size is None else size) for level in fixed_rc(task, rc, 2)]
    else:
        no_hold(task, hold, "its RC is the size of the matrix")
        levels = [3 if size is None else size] if rc is None else list(rc)
        found = [Setting(level, level) for level in levels]
        if size is not None and any(level != size for level in levels):
            raise ConfigError(
                f"{task}: the RC is the size of the matrix, so size={size} contradicts rc={levels}",
                hint="leave one of the two out",
            )
    for setting in found:
        if not MIN_SIZE <= setting.size <= MAX_SIZE:
            raise ConfigError(
                f"{task}: a matrix of {setting.size} x {setting.size} cannot be made",
                hint=f"choose a size from {MIN_SIZE} to {MAX_SIZE}",
            )
    return found


def draw(task: str, setting: Setting, number: int, rng: Random) -> Draft | None:
    """One instance, or None where the draw does not keep the distractors hidden."""
    del number
    n = setting.size
    columns = [_DRAW_COLUMN[task](n, rng) for _ in range(_ATTRIBUTES)]
    context = set[int]().union(*(column.context() for column in columns))
    if not all(_hidden(task, column, context) for column in columns):
        return None
    panels = [tuple(column.rows[i // n][i % n] for column in columns) for i in range(n * n - 1)]
    choices = list(product(*((column.gold, column.distractor) for column in columns)))
    gold = choices[0]
    rng.shuffle(choices)
    return Draft(
        question=_render_question(panels, choices, n),
        answer={"target": choices.index(gold)},
        metadata={
            "panels": [[[float(value) for value in panel]] for panel in panels],
            "choices": [[[float(value) for value in choice]] for choice in choices],
            "certificate": {
                "n": n,
                "attributes": [
                    column.certificate | {"gold": column.gold, "distractor": column.distractor}
                    for column in columns
                ],
            },
        },
    )


def _hidden(task: str, column: _Column, context: set[int]) -> bool:
    """Whether where else a value occurs says nothing about its being the gold."""
    gold, distractor = column.gold, column.distractor
    same_in_context = (gold in context) == (distractor in context)
    own = column.context()
    row = column.rows[-1][:-1]
    if task in ("REL-A1", "REL-A3"):  # to occur in the row, or not to, is the rule
        return same_in_context and (gold in own) == (distractor in own)
    if task == "REL-A2":  # a progression moves on: neither value was seen before
        return gold not in context and distractor not in context
    return (
        same_in_context
        and (gold in own) == (distractor in own)
        and (gold in row) == (distractor in row)
    )


def _ceiling(n: int) -> int:
    return 999 if n <= 12 else 10 * n * n


def _constant(n: int, rng: Random) -> _Column:
    values = rng.sample(range(1, _ceiling(n) + 1), n + 1)
    *firsts, gold, distractor = values
    above = n - 2
    other = rng.randrange(above)
    # The gold value has n - 1 copies in its own row. A copy of it in another row for half of
    # the instances makes it the commoner of the two as often as the rarer, and the two values
    # are equally often in the panel above the missing one.
    layout = rng.choice(["rarer", "rarer", "above gold", "above distractor"])
    firsts[other] = gold if layout == "above distractor" else distractor
    if layout != "rarer":
        firsts[above] = gold if layout == "above gold" else distractor
    rows = [[value] * n for value in [*firsts, gold]]
    return _Column(rows, distractor, {"rule": "constant"})


def _progression(n: int, rng: Random) -> _Column:
    steps = [step for step in range(-9, 10) if step]
    while True:
        step, other = rng.sample(steps, 2)
        # left + other must not be a value that the row has passed, nor the reverse.
        if not _passed(step, other, n) and not _passed(other, step, n):
            break
    low, high = max(0, -step * (n - 1)) + 20, _ceiling(n) - max(0, step * (n - 1))
    firsts = [rng.randint(low, high) for _ in range(n)]
    rows = [[first + step * i for i in range(n)] for first in firsts]
    return _Column(rows, rows[-1][-2] + other, {"rule": "progression", "step": step})


def _passed(step: int, other: int, n: int) -> bool:
    return any(other == -step * j for j in range(1, n))


def _permutation(n: int, rng: Random) -> _Column:
    values = rng.sample(range(1, _ceiling(n) + 1), n)
    rows = [rng.sample(values, n) for _ in range(n)]
    # Not the left neighbour: its distance would be 0, which the gold's never is.
    distractor = rng.choice(rows[-1][:-2])
    return _Column(rows, distractor, {"rule": "permutation", "set": sorted(values)})


def _row_sum(n: int, rng: Random) -> _Column:
    operation = rng.choice(["sum", "difference"])
    make_row = _sum_row if operation == "sum" else _difference_row
    widest = _widest_part(n)
    low, high = (2 * n, widest * (n - 1)) if operation == "sum" else (1, widest)
    # A pair whose order is drawn last: neither value is likelier to be the larger, the
    # smaller, or the nearer one.
    one = rng.randint(low, high)
    pair = [one, one + rng.randint(1, max(5, high // 8))]
    rng.shuffle(pair)
    rows = [make_row(n, rng.randint(low, high), rng) for _ in range(n - 1)]
    # The left neighbour must not lie between the two, or the sum of it and others is the nearer.
    while (last := make_row(n, pair[0], rng))[-2] >= min(pair) and operation == "sum":
        pass
    rows.append(last)
    return _Column(rows, pair[1], {"rule": "row sum", "operation": operation})


def _widest_part(n: int) -> int:
    return max(30, 999 // (n - 1))


def _sum_row(n: int, total: int, rng: Random) -> list[int]:
    cuts = [0, *sorted(rng.sample(range(1, total), n - 2)), total]
    return [high - low for low, high in pairwise(cuts)] + [total]


def _difference_row(n: int, rest: int, rng: Random) -> list[int]:
    parts = [rng.randint(1, _widest_part(n)) for _ in range(n - 2)]
    return [sum(parts) + rest, *parts, rest]


_DRAW_COLUMN = {
    "REL-A1": _constant,
    "REL-A2": _progression,
    "REL-A3": _permutation,
    "REL-A4": _row_sum,
}


def _render_question(panels: list[tuple[int, ...]], choices: list[tuple[int, ...]], n: int) -> str:
    rows = [
        f"row {i // n + 1}: " + ", ".join(_render_panel(panel) for panel in panels[i : i + n])
        for i in range(0, n * n, n)
    ]
    answers = [f"Answer {i}: {_render_panel(choice)}" for i, choice in enumerate(choices)]
    return _PROMPT + "; ".join(rows) + ", \n\nAnswer set:\n" + "\n".join(answers)


def _render_panel(panel: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, panel)) + ")"
