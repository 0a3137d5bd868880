"""Runs the automaton on packed states: compiled where it was built, in plain Python elsewhere.

`setup.py` compiles what `translate.py` writes. Without it (no compiler, or
`REL_BATCH_PURE_PYTHON=1`) the same functions run as Python and give the same results.

Surprising: scratch memory is kept for each thread, since the engine may fill masks in several.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import warnings
from array import array
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rel_batch.constraints.molecules import packing, readings, walks
from rel_batch.constraints.molecules.completion import MAX_ENDING, NOTES
from rel_batch.constraints.molecules.memory import MEMO_ENTRIES
from rel_batch.constraints.molecules.readings import (
    DISTANCES,
    GROUP,
    MAX_WAYS,
    RAW,
    ROW,
    TABLE,
)
from rel_batch.constraints.molecules.states import SIZE
from rel_batch.constraints.molecules.walks import MAX_DEPTH

_LIBRARY = "_native*.so"
_ROW_BYTES = 8 * ROW
_NUM_STATES = MAX_ENDING + 3


class SubTrieArrays(Protocol):
    """A trie over the characters of SMILES, as three arrays of int64 (`walks.py`)."""

    chars: Any
    end: Any
    marks: Any


class Group(NamedTuple):
    """What some readings become with a character; `key` tells equal sets of readings."""

    char: str
    key: tuple[int, int, int]
    rows: bytes


class _Lists:
    """The memory that one thread works in, in plain Python."""

    def __init__(self) -> None:
        self.state = [0] * SIZE
        self.search = (
            [[0] * SIZE for _ in range(_NUM_STATES)],
            [0] * NOTES,
            [0] * (SIZE + 1),
            [0] * (3 * MEMO_ENTRIES),
        )
        self.path = [[0] * SIZE for _ in range(MAX_DEPTH + 3)]
        self.table = [0] * (TABLE + 1)
        self.distances = [0] * (3 * DISTANCES)


class PythonAutomaton:
    """The automaton in plain Python."""

    name = "python"

    def __init__(self) -> None:
        self._local = threading.local()

    def _scratch(self) -> _Lists:
        try:
            return self._local.scratch
        except AttributeError:
            self._local.scratch = _Lists()
            return self._local.scratch

    def begin(self) -> bytes:
        """The packed state before any character."""
        at = self._scratch()
        packed = [0] * SIZE
        used = packing.begin(packed, at.state, *at.search)
        return array("q", packed[:used]).tobytes()

    def advance(self, state: bytes, code: int) -> bytes | None:
        """The packed state after one more character; None where no molecule goes on like that."""
        at = self._scratch()
        packed = _numbers(state)
        packed += [0] * (SIZE + 1 - len(packed))
        used = packing.advance(packed, code, at.state, *at.search)
        return None if used < 0 else array("q", packed[:used]).tobytes()

    def ending(self, state: bytes) -> str:
        """What the automaton would write from here to the end of the molecule."""
        at = self._scratch()
        length = packing.packed_ending(_numbers(state), at.state, *at.search)
        return "".join(map(chr, at.search[1][:length]))

    def walk(self, state: bytes, trie: SubTrieArrays, first: int, last: int) -> Any:
        """Rows of (node, kind, distance) for the nodes `first` to `last`; see `walks.walk`."""
        import numpy as np

        at = self._scratch()
        found = [0] * (6 * (last - first))
        count = walks.packed_walk(
            _numbers(state),
            trie.chars.tolist(),
            trie.end.tolist(),
            trie.marks.tolist(),
            first,
            last,
            at.path,
            *at.search[:2],
            found,
            [0] * (MAX_DEPTH + 3),
            *at.search[2:],
        )
        return np.array(found[: 3 * count], dtype=np.int64).reshape(count, 3)

    def expand(self, graphs: array[int], rows: bytes) -> list[Group]:
        """What readings become with each character that fits some of them; see `readings.py`."""
        at = self._scratch()
        count = len(rows) // _ROW_BYTES
        raw, packed, groups = (
            [0] * (count * MAX_WAYS * RAW),
            [0] * (count * MAX_WAYS * ROW),
            [0] * (128 * GROUP),
        )
        number = readings.expand(
            graphs, _numbers(rows), count, at.search[0], raw, at.table, packed, groups
        )
        return [
            Group(chr(ch), (n, a, b), array("q", packed[first * ROW : (first + n) * ROW]).tobytes())
            for ch, n, first, a, b in _groups(groups, number)
        ]

    def nearest(self, graphs: array[int], salt: int, rows: bytes, num_molecules: int) -> list[int]:
        """Characters to the end of each molecule, -1 for those that cannot come any more."""
        at = self._scratch()
        found = [0] * num_molecules
        states, notes = at.search[:2]
        numbers, count = _numbers(rows), len(rows) // _ROW_BYTES
        arguments = (
            graphs,
            salt,
            numbers,
            count,
            num_molecules,
            states,
            notes,
            at.distances,
            found,
        )
        if readings.find_nearest(*arguments) < 0:
            raise AssertionError("every trace can be finished")
        return found


class NativeAutomaton:
    """The compiled automaton."""

    name = "native"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._local = threading.local()
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._begin = library.smiles_begin
        self._begin.argtypes = [pointer] * 6
        self._advance = library.smiles_advance
        self._advance.argtypes = [pointer, number, *[pointer] * 5]
        self._ending = library.smiles_packed_ending
        self._ending.argtypes = [pointer] * 6
        self._walk = library.smiles_packed_walk
        self._walk.argtypes = [pointer] * 4 + [number] * 2 + [pointer] * 7
        self._expand = library.smiles_expand
        self._expand.argtypes = [pointer, pointer, number, *[pointer] * 5]
        self._nearest = library.smiles_find_nearest
        self._nearest.argtypes = [pointer, number, pointer, number, number, *[pointer] * 4]
        functions = (self._begin, self._advance, self._ending, self._walk)
        for function in (*functions, self._expand, self._nearest):
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
        used = self._begin(at.packed, *at.search)
        return ctypes.string_at(at.packed, 8 * used)

    def advance(self, state: bytes, code: int) -> bytes | None:
        """The packed state after one more character; None where no molecule goes on like that."""
        at = self._scratch()
        ctypes.memmove(at.packed, state, len(state))
        used = self._advance(at.packed, code, *at.search)
        return None if used < 0 else ctypes.string_at(at.packed, 8 * used)

    def ending(self, state: bytes) -> str:
        """What the automaton would write from here to the end of the molecule."""
        at = self._scratch()
        length = self._ending(state, *at.search)
        return "".join(map(chr, at.notes_numbers[:length]))

    def walk(self, state: bytes, trie: SubTrieArrays, first: int, last: int) -> Any:
        """Rows of (node, kind, distance) for the nodes `first` to `last`; see `walks.walk`."""
        at = self._scratch()
        found = at.results(2 * (last - first))
        count = self._walk(
            state,
            trie.chars.ctypes.data,
            trie.end.ctypes.data,
            trie.marks.ctypes.data,
            first,
            last,
            at.path,
            at.states,
            at.notes,
            found.ctypes.data,
            at.ends_at,
            at.words,
            at.memo,
        )
        return found[:count].copy()

    def expand(self, graphs: array[int], rows: bytes) -> list[Group]:
        """What readings become with each character that fits some of them; see `readings.py`."""
        at = self._scratch()
        count = len(rows) // _ROW_BYTES
        raw = at.results(count * MAX_WAYS * (RAW + ROW) // 3 + 1).ctypes.data
        packed = raw + 8 * count * MAX_WAYS * RAW
        address = graphs.buffer_info()[0]
        number = self._expand(address, rows, count, at.states, raw, at.table, packed, at.groups)
        return [
            Group(
                chr(ch),
                (n, a, b),
                ctypes.string_at(packed + _ROW_BYTES * first, _ROW_BYTES * n),
            )
            for ch, n, first, a, b in _groups(at.groups_numbers, number)
        ]

    def nearest(self, graphs: array[int], salt: int, rows: bytes, num_molecules: int) -> list[int]:
        """Characters to the end of each molecule, -1 for those that cannot come any more."""
        at = self._scratch()
        found = (ctypes.c_int64 * num_molecules)()
        address, count = graphs.buffer_info()[0], len(rows) // _ROW_BYTES
        scratch = (at.states, at.notes, at.distances, ctypes.addressof(found))
        if self._nearest(address, salt, rows, count, num_molecules, *scratch) < 0:
            raise AssertionError("every trace can be finished")
        return list(found)


class _Scratch:
    """Addresses of the memory that one thread works in."""

    def __init__(self) -> None:
        sizes = {
            "packed": SIZE + 1,
            "state": SIZE,
            "states": SIZE * _NUM_STATES,
            "notes": NOTES,
            "words": SIZE + 1,
            "path": SIZE * (MAX_DEPTH + 3),
            "ends_at": MAX_DEPTH + 3,
            "memo": 3 * MEMO_ENTRIES,
            "table": TABLE + 1,
            "groups": 128 * GROUP,
            "distances": 3 * DISTANCES,
        }
        self._memory = {name: (ctypes.c_int64 * size)() for name, size in sizes.items()}
        address = {name: ctypes.addressof(memory) for name, memory in self._memory.items()}
        self.packed = address["packed"]
        self.states = address["states"]
        self.notes = address["notes"]
        self.words = address["words"]
        self.memo = address["memo"]
        self.search = (address["state"], self.states, self.notes, self.words, self.memo)
        self.path = address["path"]
        self.ends_at = address["ends_at"]
        self.table = address["table"]
        self.groups = address["groups"]
        self.distances = address["distances"]
        self.notes_numbers = self._memory["notes"]
        self.groups_numbers = self._memory["groups"]
        self._found: Any = None

    def results(self, num_rows: int) -> Any:
        """Room for so many results of a walk; only what is written to takes memory."""
        import numpy as np

        if self._found is None or len(self._found) < num_rows:
            self._found = np.empty((num_rows, 3), dtype=np.int64)
        return self._found


def _groups(numbers: Any, count: int) -> Any:
    return (numbers[GROUP * k : GROUP * (k + 1)] for k in range(count))


def _numbers(state: bytes) -> list[int]:
    return array("q", state).tolist()


def sources_digest() -> int:
    """A number that changes with the source that the compiled automaton is made of."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        source = file.read_bytes()
        if b"@native" in source or file.name == "elements.py":
            digest.update(source)
    return int.from_bytes(digest.digest()[:7], "little")


def load_automaton() -> PythonAutomaton | NativeAutomaton:
    """The compiled automaton, or the Python one where it was not built or is switched off.

    One that was built from other sources is left alone, with a warning: its masks may differ.
    """
    if os.environ.get("REL_BATCH_PURE_PYTHON") != "1":
        for file in sorted(Path(__file__).parent.glob(_LIBRARY)):
            library = ctypes.CDLL(str(file))
            if _was_built_from_here(library):
                return NativeAutomaton(library)
            warnings.warn(
                f"{file} was built from other sources and is not used, which makes masks of "
                "molecules some hundred times slower: install the package again, or in a checkout "
                "run `python setup.py build_ext --inplace --force`",
                RuntimeWarning,
                stacklevel=2,
            )
    return PythonAutomaton()


def _was_built_from_here(library: ctypes.CDLL) -> bool:
    try:
        sources = library.smiles_sources
    except AttributeError:
        return False
    sources.restype = ctypes.c_int64
    return sources() == sources_digest()
