"""YAML for people, without its traps: the one place that reads it.

    >>> parse_yaml("temperature: 1e-3", "x.yaml")
    {'temperature': 0.001}

Safe (no objects are built), a key given twice is an error, and aliases are refused, because a
few lines of them expand to gigabytes. Surprising: `1e-3` is a number here; YAML 1.1 reads it as
a string. `4:00:00` is a string here; YAML 1.1 reads the number 14400, in base 60.
"""

# PyYAML is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from rel_batch.errors import ConfigError


class _StrictLoader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise ComposerError(None, None, "aliases (*name) are not allowed", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    problem = f"the key {key!r} is given twice"
                    raise ConstructorError(None, None, problem, key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)


_BASE_60 = re.compile(r"^[-+]?[0-9]+(?::[0-9]+)+(?:\.[0-9]*)?$")

# Tried before the loader's own, each under the first characters that it may have.
_StrictLoader.yaml_implicit_resolvers = {
    first: [("tag:yaml.org,2002:str", _BASE_60), *resolvers]
    if first in "+-0123456789"
    else resolvers
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_yaml(text: str, where: str) -> Any:
    """The value of one YAML document. Raises ConfigError with `where` and the line."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (derives from SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        raise ConfigError(f"{place}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid YAML: {error}") from error
