"""How a constraint reaches our grammar backend: as a grammar that any other backend reads wrongly.

A spec is a grammar in the notation of the engine's own backend. Its first line is a comment that
holds the constraint; `grammar_backend` reads that line. What follows is a trap: a grammar of a
single text that no constraint admits. An engine without our backend writes that text, each row
fails its check, and the canary stops the run at its start: nothing is ever silently unconstrained.

    >>> read_spec(write_spec({"backend": "machine"}, "guidance"))
    {'backend': 'machine'}
    >>> read_spec('start: "No" | "Yes"') is None
    True

Surprising: nothing here imports vLLM, so that what is sent can be tested without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

Carrier = Literal["guidance", "xgrammar"]

TRAP = "rel-batch: its grammar backend is not loaded in this engine"
_MARK = " rel-batch "
_COMMENT: Mapping[str, str] = {"guidance": "//", "xgrammar": "#"}
_START: Mapping[str, str] = {"guidance": "start: ", "xgrammar": "root ::= "}


def write_spec(payload: Mapping[str, Any], carrier: Carrier) -> str:
    """`payload` as a grammar for an engine whose own backend is `carrier`."""
    text = json.dumps(payload, separators=(",", ":"))  # ASCII, one line
    return f'{_COMMENT[carrier]}{_MARK}{text}\n{_START[carrier]}"{TRAP}"\n'


def read_spec(grammar: str) -> dict[str, Any] | None:
    """What `write_spec` put in; None for any other grammar. Raises ValueError if it is broken."""
    for comment in _COMMENT.values():
        if grammar.startswith(comment + _MARK):
            payload = json.loads(grammar.partition("\n")[0][len(comment + _MARK) :])
            if not isinstance(payload, dict):
                raise ValueError("the first line of a rel-batch grammar holds no object")
            return cast("dict[str, Any]", payload)
    return None
