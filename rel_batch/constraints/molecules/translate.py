"""Writes the automaton's inner functions as C, so that there is one source for both.

The functions marked `@native` are written in a small part of Python: integers, arrays of
integers, `if`, `while`, `for ... in range(...)`. `render_c` turns them into C functions of the
same names; `setup.py` compiles the result, and `native.py` loads it. Where no compiler was at hand
the functions run as they are and give the same masks, some hundred times slower.

    >>> import ast
    >>> print(render_function(ast.parse("def twice(x: int) -> int:\\n    return 2 * x").body[0]))
    static int64_t twice(int64_t x) {
        return (2 * x);
    }

Surprising: `//` and `%` become C's, which differ from Python's for negative numbers; the marked
functions use them for numbers from 0 on only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rel_batch.constraints.molecules import (
    automaton,
    bonds,
    completion,
    memory,
    options,
    packing,
    pairing,
    readings,
    states,
    traces,
    tree,
    valences,
    walks,
)
from rel_batch.constraints.molecules.native import sources_digest

MODULES = (
    *(states, valences, tree, bonds, automaton, pairing, options, memory, completion, packing),
    *(walks, traces, readings),
)
EXPORTS = ("begin", "advance", "packed_ending", "packed_walk", "expand", "find_nearest")
TABLES = (
    *("VALENCE_TABLE", "EARLY", "MOST_BONDS", "ELEMENT_BY_LETTERS", "BOND_CHARS"),
    "ORGANIC_SUBSET",
)
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], str] = {ast.Not: "!", ast.USub: "-", ast.Invert: "~"}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_TYPES = {
    "int": "int64_t",
    "bool": "int64_t",
    "Array": "int64_t *",
    "States": "int64_t (*%s)[SIZE]",
}
_PRELUDE = """#include <stdint.h>
#include <string.h>
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
"""


# Copies what is in use only.
_COPY_STATE = """
static void copy_part(int64_t *to, const int64_t *from, int64_t first, int64_t count) {
    memmove(to + first, from + first, count * sizeof(int64_t));
}
static void copy_state(int64_t *to, const int64_t *st) {
    int64_t slots = st[ALIVE] ? 64 - __builtin_clzll(st[ALIVE]) : 0;
    copy_part(to, st, 0, NODES + slots * WIDTH);
    copy_part(to, st, RINGS, 3 * st[NUM_RINGS]);
    copy_part(to, st, STACK, st[NUM_STACK]);
    copy_part(to, st, MATCHINGS, 2 * st[NUM_MATCHINGS]);
}
"""


def render_c() -> str:
    """C source of every `@native` function of this package."""
    functions: list[ast.FunctionDef] = []
    values: dict[str, Any] = {}
    for module in MODULES:
        assert module.__file__ is not None
        functions += _native_functions(Path(module.__file__))
        values |= {name: v for name, v in vars(module).items() if name.isupper()}
    lines = [_PRELUDE]
    # the C library has functions of some of these names
    lines += [f"#define {name} smiles_{name}" for name in EXPORTS]
    lines += [f"#define {name} ({v})" for name, v in values.items() if isinstance(v, int)]
    lines += [_COPY_STATE]
    lines += [f"int64_t smiles_sources(void) {{ return {sources_digest()}; }}"]
    lines += [_render_table(name, v) for name, v in values.items() if name in TABLES]
    lines += [f"{_signature(function)};" for function in functions]
    lines += [render_function(function) for function in functions]
    return "\n".join(lines) + "\n"


def _native_functions(file: Path) -> Iterable[ast.FunctionDef]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(d, ast.Name) and d.id == "native" for d in node.decorator_list
        ):
            yield node


def _render_table(name: str, table: Any) -> str:
    if isinstance(table[0], tuple):
        rows = ",\n    ".join("{" + ", ".join(map(str, row)) + "}" for row in table)
        return f"static const int64_t {name}[{len(table)}][{len(table[0])}] = {{\n    {rows}}};"
    return f"static const int64_t {name}[{len(table)}] = {{{', '.join(map(str, table))}}};"


def _declaration(name: str, annotation: ast.expr | None) -> str:
    assert isinstance(annotation, ast.Name)
    kind = _TYPES[annotation.id]
    return kind % name if "%s" in kind else f"{kind}{'' if kind.endswith('*') else ' '}{name}"


def _signature(function: ast.FunctionDef) -> str:
    arguments = ", ".join(_declaration(a.arg, a.annotation) for a in function.args.args)
    linkage = "" if function.name in EXPORTS else "static "
    return f"{linkage}int64_t {function.name}({arguments})"


def render_function(function: ast.stmt) -> str:
    """One function as C."""
    assert isinstance(function, ast.FunctionDef)
    parameters = {a.arg for a in function.args.args}
    states = {
        a.arg
        for a in function.args.args
        if isinstance(a.annotation, ast.Name) and a.annotation.id == "States"
    }
    numbers: list[str] = []
    pointers: list[str] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for name, value in _assigned_names(node):
                if name in parameters or name in numbers or name in pointers:
                    continue
                from_states = (
                    isinstance(value, ast.Subscript)
                    and isinstance(value.value, ast.Name)
                    and value.value.id in states
                )
                (pointers if from_states else numbers).append(name)
        elif isinstance(node, ast.For):
            assert isinstance(node.target, ast.Name)
            if node.target.id not in numbers and node.target.id not in parameters:
                numbers.append(node.target.id)
    lines = [_signature(function) + " {"]
    if numbers:
        lines.append("    int64_t " + ", ".join(f"{name} = 0" for name in numbers) + ";")
    lines += [f"    int64_t *{name};" for name in pointers]
    lines += _block(function.body, 1)
    if not isinstance(function.body[-1], ast.Return):
        lines.append("    return 0;")
    return "\n".join([*lines, "}"])


def _assigned_names(node: ast.Assign) -> Iterable[tuple[str, ast.expr | None]]:
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple):
            for element in target.elts:
                if isinstance(element, ast.Name):
                    yield element.id, None


def _block(body: list[ast.stmt], depth: int) -> list[str]:
    return [line for statement in body for line in _statement(statement, depth)]


def _statement(node: ast.stmt, depth: int) -> list[str]:
    pad = "    " * depth
    if isinstance(node, ast.Return):
        return [f"{pad}return {_expression(node.value) if node.value else 0};"]
    if isinstance(node, ast.If):
        lines = [f"{pad}if ({_expression(node.test)}) {{", *_block(node.body, depth + 1)]
        if node.orelse:
            lines += [f"{pad}}} else {{", *_block(node.orelse, depth + 1)]
        return [*lines, f"{pad}}}"]
    if isinstance(node, ast.While):
        return [
            f"{pad}while ({_expression(node.test)}) {{",
            *_block(node.body, depth + 1),
            f"{pad}}}",
        ]
    if isinstance(node, ast.For):
        assert isinstance(node.iter, ast.Call)
        assert isinstance(node.target, ast.Name)
        bounds = [_expression(argument) for argument in node.iter.args]
        first, end = (bounds[0], bounds[1]) if len(bounds) == 2 else ("0", bounds[0])
        name, stop = node.target.id, f"{node.target.id}_end"
        head = (
            f"{pad}for (int64_t {stop} = ({name} = {first}, {end}); {name} < {stop}; {name}++) {{"
        )
        return [head, *_block(node.body, depth + 1), f"{pad}}}"]
    if isinstance(node, ast.AugAssign):
        operator = _BINARY[type(node.op)]
        return [f"{pad}{_expression(node.target)} {operator}= {_expression(node.value)};"]
    if isinstance(node, ast.Assign):
        (target,) = node.targets
        if isinstance(target, ast.Tuple):
            assert isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=True)
            return [f"{pad}{_expression(t)} = {_expression(v)};" for t, v in pairs]
        return [f"{pad}{_expression(target)} = {_expression(node.value)};"]
    if isinstance(node, ast.Break):
        return [f"{pad}break;"]
    if isinstance(node, ast.Continue):
        return [f"{pad}continue;"]
    if isinstance(node, ast.Expr):
        return [] if isinstance(node.value, ast.Constant) else [f"{pad}{_expression(node.value)};"]
    raise TypeError(f"line {node.lineno}: {type(node).__name__} has no translation")


def _expression(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant):
        return str(int(node.value))  # pyright: ignore[reportArgumentType]
    if isinstance(node, ast.BinOp):
        left = _expression(node.left)
        if isinstance(node.op, ast.LShift):
            left = f"(int64_t){left}"
        return f"({left} {_BINARY[type(node.op)]} {_expression(node.right)})"
    if isinstance(node, ast.BoolOp):
        word = " && " if isinstance(node.op, ast.And) else " || "
        return "(" + word.join(_expression(value) for value in node.values) + ")"
    if isinstance(node, ast.UnaryOp):
        return f"{_UNARY[type(node.op)]}({_expression(node.operand)})"
    if isinstance(node, ast.Compare):
        parts: list[str] = []
        left = _expression(node.left)
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In):
                assert isinstance(right, ast.Tuple)
                options = " || ".join(f"{left} == {_expression(e)}" for e in right.elts)
                parts.append(f"({options})")
            else:
                value = _expression(right)
                parts.append(f"({left} {_COMPARE[type(operator)]} {value})")
                left = value
        return parts[0] if len(parts) == 1 else "(" + " && ".join(parts) + ")"
    if isinstance(node, ast.IfExp):
        yes, no = _expression(node.body), _expression(node.orelse)
        return f"(({_expression(node.test)}) ? {yes} : {no})"
    if isinstance(node, ast.Subscript):
        index = node.slice
        indices = index.elts if isinstance(index, ast.Tuple) else [index]
        return _expression(node.value) + "".join(f"[{_expression(i)}]" for i in indices)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        return f"{node.func.id}({', '.join(_expression(a) for a in node.args)})"
    raise TypeError(f"line {node.lineno}: {type(node).__name__} has no translation")
