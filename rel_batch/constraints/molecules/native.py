"""Runs the automaton on packed states: compiled where it was built, in plain Python elsewhere.

`setup.py` compiles what `translate.py` writes. Without it (no compiler, or
`REL_BATCH_PURE_PYTHON=1`) the same functions run as Python and give the same results.

Surprising: scratch memory is kept for each thread, since the engine may fill masks in several.
"""

from __future__ import annotations

import ctypes
import os
import threading
from array import array
from pathlib import Path
from typing import Any, Protocol

from rel_batch.constraints.molecules import packing, walks
from rel_batch.constraints.molecules.completion import MAX_ENDING
from rel_batch.constraints.molecules.states import SIZE
from rel_batch.constraints.molecules.walks import MAX_DEPTH, MEMO_ENTRIES

_LIBRARY = "_native*.so"
_NUM_STATES = MAX_ENDING + 3
_NUM_ENDING = 3 * MAX_ENDING


class SubTrieArrays(Protocol):
    """A trie over the characters of SMILES, as three arrays of int64 (`walks.py`)."""

    chars: Any
    end: Any
    marks: Any


class PythonAutomaton:
    """The automaton in plain Python."""

    name = "python"

    def __init__(self) -> None:
        self._local = threading.local()

    def _scratch(self) -> tuple[list[int], list[list[int]], list[int]]:
        try:
            return self._local.scratch
        except AttributeError:
            states = [[0] * SIZE for _ in range(_NUM_STATES)]
            self._local.scratch = ([0] * SIZE, states, [0] * _NUM_ENDING)
            return self._local.scratch

    def begin(self) -> bytes:
        """The packed state before any character."""
        st, states, ending = self._scratch()
        packed = [0] * SIZE
        used = packing.begin(packed, st, states, ending)
        return array("q", packed[:used]).tobytes()

    def advance(self, state: bytes, code: int) -> bytes | None:
        """The packed state after one more character; None where no molecule goes on like that."""
        st, states, ending = self._scratch()
        packed = _numbers(state)
        packed += [0] * (SIZE + 1 - len(packed))
        used = packing.advance(packed, code, st, states, ending)
        return None if used < 0 else array("q", packed[:used]).tobytes()

    def ending(self, state: bytes) -> str:
        """What the automaton would write from here to the end of the molecule."""
        st, states, ending = self._scratch()
        length = packing.packed_ending(_numbers(state), st, states, ending)
        return "".join(map(chr, ending[:length]))

    def walk(self, state: bytes, trie: SubTrieArrays, first: int, last: int) -> Any:
        """Rows of (node, kind, distance) for the nodes `first` to `last`; see `walks.walk`."""
        import numpy as np

        _, states, ending = self._scratch()
        if not hasattr(self._local, "memo"):
            self._local.memo = [0] * (3 * MEMO_ENTRIES)
        memo: list[int] = self._local.memo
        path = [[0] * SIZE for _ in range(MAX_DEPTH + 3)]
        found = [0] * (6 * (last - first))
        count = walks.packed_walk(
            _numbers(state),
            trie.chars.tolist(),
            trie.end.tolist(),
            trie.marks.tolist(),
            first,
            last,
            path,
            states,
            ending,
            found,
            [0] * (MAX_DEPTH + 3),
            [0] * (SIZE + 1),
            memo,
        )
        return np.array(found[: 3 * count], dtype=np.int64).reshape(count, 3)


class NativeAutomaton:
    """The compiled automaton."""

    name = "native"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._local = threading.local()
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._begin = library.smiles_begin
        self._begin.argtypes = [pointer] * 4
        self._advance = library.smiles_advance
        self._advance.argtypes = [pointer, number, pointer, pointer, pointer]
        self._ending = library.smiles_packed_ending
        self._ending.argtypes = [pointer] * 4
        self._walk = library.smiles_packed_walk
        self._walk.argtypes = [pointer] * 4 + [number] * 2 + [pointer] * 7
        for function in (self._begin, self._advance, self._ending, self._walk):
            function.restype = number

    def _scratch(self) -> _Scratch:
        try:
            return self._local.scratch
        except AttributeError:
            self._local.scratch = _Scratch()
            return self._local.scratch

    def begin(self) -> bytes:
        """The packed state before any character."""
        at = self._scratch()
        used = self._begin(at.packed, at.state, at.states, at.ending)
        return ctypes.string_at(at.packed, 8 * used)

    def advance(self, state: bytes, code: int) -> bytes | None:
        """The packed state after one more character; None where no molecule goes on like that."""
        at = self._scratch()
        ctypes.memmove(at.packed, state, len(state))
        used = self._advance(at.packed, code, at.state, at.states, at.ending)
        return None if used < 0 else ctypes.string_at(at.packed, 8 * used)

    def ending(self, state: bytes) -> str:
        """What the automaton would write from here to the end of the molecule."""
        at = self._scratch()
        length = self._ending(state, at.state, at.states, at.ending)
        return "".join(map(chr, at.ending_numbers[:length]))

    def walk(self, state: bytes, trie: SubTrieArrays, first: int, last: int) -> Any:
        """Rows of (node, kind, distance) for the nodes `first` to `last`; see `walks.walk`."""
        import numpy as np

        at = self._scratch()
        found = np.empty((2 * (last - first), 3), dtype=np.int64)
        count = self._walk(
            state,
            trie.chars.ctypes.data,
            trie.end.ctypes.data,
            trie.marks.ctypes.data,
            first,
            last,
            at.path,
            at.states,
            at.ending,
            found.ctypes.data,
            at.ends_at,
            at.packed,
            at.memo,
        )
        return found[:count]


class _Scratch:
    """Addresses of the memory that one thread works in."""

    def __init__(self) -> None:
        sizes = {
            "packed": SIZE + 1,
            "state": SIZE,
            "states": SIZE * _NUM_STATES,
            "ending": _NUM_ENDING,
            "path": SIZE * (MAX_DEPTH + 3),
            "ends_at": MAX_DEPTH + 3,
            "memo": 3 * MEMO_ENTRIES,
        }
        self._memory = {name: (ctypes.c_int64 * size)() for name, size in sizes.items()}
        address = {name: ctypes.addressof(memory) for name, memory in self._memory.items()}
        self.packed = address["packed"]
        self.state = address["state"]
        self.states = address["states"]
        self.ending = address["ending"]
        self.path = address["path"]
        self.ends_at = address["ends_at"]
        self.memo = address["memo"]
        self.ending_numbers = self._memory["ending"]


def _numbers(state: bytes) -> list[int]:
    return array("q", state).tolist()


def load_automaton() -> PythonAutomaton | NativeAutomaton:
    """The compiled automaton, or the Python one where it was not built or is switched off."""
    if os.environ.get("REL_BATCH_PURE_PYTHON") != "1":
        for file in sorted(Path(__file__).parent.glob(_LIBRARY)):
            return NativeAutomaton(ctypes.CDLL(str(file)))
    return PythonAutomaton()
