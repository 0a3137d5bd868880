"""A constraint as JSON text, to travel to the engine's process, and back.

    >>> from rel_batch.constraints import Constraint, Text
    >>> encode(Constraint("format", Text("ok")))
    '{"kind":"format","expression":["Text","ok"],"rules":[]}'
    >>> decode(encode(Constraint("format", Text("ok")))) == Constraint("format", Text("ok"))
    True

An expression is a list of its class's name and its fields. Only the classes named here can come
back: nothing is looked up by a name that the text gives.

Surprising: the text is ASCII and one line, so that it can stand in a comment.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from typing import Any, cast

from rel_batch.constraints import (
    Chars,
    Constraint,
    Expression,
    Nothing,
    OneOf,
    Repeat,
    Rule,
    Seq,
    Subset,
    Text,
)

_CLASSES: dict[str, type[Expression]] = {
    cls.__name__: cls for cls in (Chars, Nothing, OneOf, Repeat, Rule, Seq, Subset, Text)
}
# Leaves that are loaded only where a constraint uses them.
_LOADED_ON_USE = {
    "Molecule": "rel_batch.constraints.molecules",
    "NewMolecules": "rel_batch.constraints.molecules",
    "Substructure": "rel_batch.chem.substructure_leaf",
}


def encode(constraint: Constraint) -> str:
    """`constraint` as one line of ASCII JSON. `schema` is left out: no matcher needs it."""
    expression = constraint.expression
    value = {
        "kind": constraint.kind,
        "expression": None if expression is None else _encoded(expression),
        "rules": [[name, _encoded(rule)] for name, rule in constraint.rules],
    }
    return json.dumps(value, separators=(",", ":"))


def decode(text: str) -> Constraint:
    """The constraint that `encode` wrote. Raises ValueError if the text is none."""
    try:
        value = json.loads(text)
        expression = value["expression"]
        return Constraint(
            value["kind"],
            None if expression is None else _decoded_expression(expression),
            tuple((str(name), _decoded_expression(rule)) for name, rule in value["rules"]),
        )
    except (KeyError, TypeError, IndexError, RecursionError) as error:
        raise ValueError(f"not an encoded constraint: {error}") from error


def _encoded(value: Any) -> Any:
    if isinstance(value, Expression):
        name = type(value).__name__
        if name not in _CLASSES and name not in _LOADED_ON_USE:
            raise TypeError(f"{name} is not known to the encoding of constraints")
        return [name, *(_encoded(getattr(value, field)) for field in _fields(type(value)))]
    if isinstance(value, tuple):
        return [None, *(_encoded(item) for item in cast("tuple[Any, ...]", value))]
    return value


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    head, *items = cast("list[Any]", value)
    if head is None:
        return tuple(_decoded(item) for item in items)
    cls = _class_named(head)
    fields = _fields(cls)
    if len(items) != len(fields):
        raise ValueError(f"{head} has {len(fields)} fields, not {len(items)}")
    return cls(**{field: _decoded(item) for field, item in zip(fields, items, strict=True)})


def _decoded_expression(value: Any) -> Expression:
    expression = _decoded(value)
    if not isinstance(expression, Expression):
        raise ValueError("not an encoded expression")
    return expression


def _class_named(name: str) -> type[Expression]:
    if name in _LOADED_ON_USE:
        return getattr(importlib.import_module(_LOADED_ON_USE[name]), name)
    try:
        return _CLASSES[name]
    except KeyError as error:
        raise ValueError(f"no expression is called {name!r}") from error


def _fields(cls: type[Expression]) -> list[str]:
    assert dataclasses.is_dataclass(cls)
    return [field.name for field in dataclasses.fields(cls) if field.init]
