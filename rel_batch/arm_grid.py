"""A grid of arms in a config, written out as the list of its arms.

    arms: {grid: {constraint: [none, format], top_p: [0.9, 1.0]}, samples: 4, temperature: 0.7}

is four arms, `none-0.9`, `none-1.0`, `format-0.9` and `format-1.0`, with 4 samples each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, cast

from rel_batch.errors import ConfigError

_MOST_ARMS = 100


def with_grid_expanded(data: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """`arms: {grid: {key: [values], ...}, ...}` as the list of every combination.

    Keys beside `grid` are the same for all. An arm is named by its values where they differ. Other
    data is given back as it is. Raises ConfigError.
    """
    arms = data.get("arms")
    if not isinstance(arms, Mapping):
        return data
    common = dict(cast(Mapping[str, Any], arms))
    grid: Any = common.pop("grid", None)
    if not _is_grid(grid):
        raise ConfigError(
            f"{where}: arms is a list of arms, or a grid of settings with their values",
            hint="for example  arms: {grid: {constraint: [none, format], top_p: [0.9, 1.0]}}",
        )
    values: dict[str, list[Any]] = grid
    number = math.prod(map(len, values.values()))
    if number > _MOST_ARMS:
        raise ConfigError(f"{where}: the grid has {number} arms; at most {_MOST_ARMS} are run")
    named = [key for key in values if len(values[key]) > 1] or list(values)
    combinations = [
        dict(zip(values, some, strict=True)) for some in itertools.product(*values.values())
    ]
    expanded = [
        {**common, **one, "name": "-".join(str(one[key]).lower() for key in named)}
        for one in combinations
    ]
    return {**data, "arms": expanded}


def _is_grid(grid: Any) -> bool:
    """Whether each setting has values that can be part of a name."""
    if not isinstance(grid, Mapping) or not grid:
        return False
    lists = cast(Mapping[str, Any], grid).values()
    return all(
        isinstance(some, list)
        and bool(cast(list[Any], some))
        and all(isinstance(v, str | int | float) for v in cast(list[Any], some))
        for some in lists
    )
