"""JSON values of a bounded shape, as a schema and as an expression from one source.

    >>> answer = json_object(answer=json_integer(0, 7))
    >>> constraint = answer.constraint("json")
    >>> constraint.matches('{"answer":3}'), constraint.matches('{"answer": 3}')
    (True, False)
    >>> constraint.schema
    '{"type":"object","properties":{"answer":{"enum":[0,1,2,3,4,5,6,7]}},...

There is no white space outside strings, keys come in the order given, and every array and string
is bounded, so that a model cannot write blanks or items until its tokens run out.

Surprising: the expression is the judge. The schema goes to an engine's JSON mode, and the tests
hold every backend's JSON mode to the expression.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rel_batch.constraints import (
    Chars,
    Constraint,
    Expression,
    Kind,
    OneOf,
    Repeat,
    Seq,
    Subset,
    Text,
    optional,
    separated,
)
from rel_batch.constraints.subset import Order

# xgrammar 0.2.8 does not compile a pattern with a greater bound where it has a cache, as in vLLM.
_MOST_REPEATS = 128


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A set of JSON texts: as a schema and as an expression."""

    schema: Mapping[str, Any]
    expression: Expression

    def constraint(self, kind: Kind) -> Constraint:
        """The constraint that a reply is one of these texts."""
        return Constraint(kind, self.expression, schema=render_json(self.schema))


def json_enum(*values: str | int | bool) -> JsonValue:
    """One of the given values."""
    options = tuple(Text(render_json(value)) for value in values)
    expression = options[0] if len(options) == 1 else OneOf(options)
    return JsonValue({"enum": list(values)}, expression)


def json_fixed(values: list[int]) -> JsonValue:
    """Exactly this array of integers."""
    return JsonValue({"const": values}, Text(render_json(values)))


def json_integer(least: int, most: int) -> JsonValue:
    """An integer of a small range."""
    return json_enum(*range(least, most + 1))


def json_string(chars: str, least: int, most: int) -> JsonValue:
    """A string of these characters, of which none needs an escape in JSON or in a pattern's
    class but `]^-[`. `least` is at most 128."""
    if any(render_json(char) != f'"{char}"' or char == "\\" for char in chars):
        raise ValueError("a character of the string would need an escape in JSON")
    members = "".join(f"\\{c}" if c in "]^-[" else c for c in chars.replace("^", ""))
    members += "\\^" if "^" in chars else ""
    pattern = f"[{members}]{{{least},{min(most, _MOST_REPEATS)}}}"
    for past in range(_MOST_REPEATS, most, _MOST_REPEATS):
        pattern += f"[{members}]{{0,{min(most - past, _MOST_REPEATS)}}}"
    return JsonValue(
        {"type": "string", "pattern": f"^{pattern}$"},
        Seq((Text('"'), Repeat(Chars(chars), least, most), Text('"'))),
    )


def json_array(item: JsonValue, least: int, most: int) -> JsonValue:
    """An array of `least` to `most` items."""
    schema = {"type": "array", "items": item.schema, "minItems": least, "maxItems": most}
    if most == 0:
        return JsonValue(schema, Text("[]"))
    items = separated(item.expression, ",", max(least, 1), most)
    return JsonValue(schema, Seq((Text("["), optional(items) if least == 0 else items, Text("]"))))


def json_subset(names: tuple[str, ...], order: Order) -> JsonValue:
    """An array of at least one of the names, none twice.

    Its schema cannot be had in the JSON modes at hand (xgrammar has no `uniqueItems`): it says
    what a prompt can show, and the expression is what is decoded.
    """
    quoted = tuple(render_json(name) for name in names)
    return JsonValue(
        {
            "type": "array",
            "items": {"enum": list(names)},
            "minItems": 1,
            "maxItems": len(names),
            "uniqueItems": True,
        },
        Seq((Text("["), Subset(quoted, ",", order), Text("]"))),
    )


def json_object(**properties: JsonValue) -> JsonValue:
    """An object with exactly these keys, in this order."""
    parts: list[Expression] = []
    for position, (key, value) in enumerate(properties.items()):
        parts += [Text(("," if position else "{") + render_json(key) + ":"), value.expression]
    return JsonValue(
        {
            "type": "object",
            "properties": {key: value.schema for key, value in properties.items()},
            "required": list(properties),
            "additionalProperties": False,
        },
        Seq((*parts, Text("}"))),
    )


def json_either(*options: JsonValue) -> JsonValue:
    """Any one of the shapes."""
    return JsonValue(
        {"anyOf": [option.schema for option in options]},
        OneOf(tuple(option.expression for option in options)),
    )


def render_json(value: Any) -> str:
    """`value` as these shapes write it: no white space, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parse_json(text: str) -> Any:
    """The value of a JSON text; None if it is none, or nested beyond reason."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
