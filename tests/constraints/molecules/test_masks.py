"""Token masks: exactly the tokens that the automaton reads, compiled or not, in time."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rel_batch.constraints import Constraint, Seq, Text
from rel_batch.constraints.molecules import Molecule, masks, native
from rel_batch.constraints.molecules.translate import render_c
from rel_batch.constraints.token_masks import MaskCache, TokenMasks, TokenReader
from rel_batch.constraints.vocabulary import TokenTrie, token_trie

MOLECULE = Molecule()
STRINGS = [
    *"CNOPSFIBcnops()[]=#-+@/\\%0123456789HlrSi",
    "CC", "Cl", "Br", "c1ccccc1", "c1cc", "ccc", "(=O)", "C(=O)", ")cc", "1)", "nH", "[nH]", "[N",
    "+](", "=O)[", "O-]", "[C@@H](", "C1", "%1", "%10", "2C", "</", ")</", "1</smiles>", "O<",
    "C\n", "<smiles>", "hello", " C", "\u00e9", "C\u00e9",
]  # fmt: skip
TOKENS: list[bytes | None] = [
    None,
    *(text.encode() for text in STRINGS),
    b"\xf0\x9f",  # part of a character
    b"C\xe2",
    b"CC",  # the same bytes twice
    b"",
]


@pytest.fixture(scope="module")
def trie() -> TokenTrie:
    return token_trie(TOKENS, len(TOKENS))


def _prefixes(number: int) -> list[bytes]:
    rng = random.Random(1)
    found: list[bytes] = []
    for _ in range(number):
        state = MOLECULE.first()
        for _ in range(rng.randint(0, 25)):
            following = None
            while following is None:
                text = rng.choice(STRINGS)
                following = _read(state, text)
                if following is None and rng.random() < 0.05:
                    following = _read(state, MOLECULE.ending(state)[:1])
            state = following
        found.append(state)
    return found


def _read(state: bytes, text: str) -> bytes | None:
    following: bytes | None = state
    for char in text:
        following = None if following is None else MOLECULE.step(following, char)
    return following


def test_a_mask_holds_the_tokens_that_step_by_step_reading_takes(trie: TokenTrie) -> None:
    for state in _prefixes(40):
        walk = MOLECULE.token_walk(state, trie)
        expected: dict[int, int] = {}
        for token_id, token in enumerate(TOKENS):
            if token and token.isascii():
                after = _read(state, token.decode())
                if after is not None:
                    expected[token_id] = MOLECULE.distance(after)
        assert dict(zip(walk.ids.tolist(), walk.distances.tolist(), strict=True)) == expected


def test_a_mask_tells_where_the_molecule_may_end_inside_a_token(trie: TokenTrie) -> None:
    state = _read(MOLECULE.first(), "c1ccccc")
    assert state is not None
    walk = MOLECULE.token_walk(state, trie)
    inner = [node for node, _ in walk.exits]
    ways_out = {bytes(trie.byte[node : node + 1]) for node in inner}
    assert ways_out == {b"1"}  # "1</smiles>"; no hexagon ends before its ring does
    assert all(MOLECULE.is_final(after) for _, after in walk.exits)


def test_a_walk_may_begin_below_the_root(trie: TokenTrie) -> None:
    node = trie.children(0)[ord("C")]
    walk = MOLECULE.token_walk(MOLECULE.first(), trie, node)
    texts = {(TOKENS[int(i)] or b"").decode() for i in walk.ids}
    # the C was read before; what is left of each token is read from the leaf's first state
    expected = {t for t in STRINGS if t[0] == "C" and len(t) > 1 and t.isascii()}
    assert texts == {t for t in expected if _read(MOLECULE.first(), t[1:]) is not None}


HOSTILE_TOKENS: list[bytes | None] = [
    *(bytes((byte,)) for byte in range(256)),  # the beginnings and ends of characters among them
    *(b"[N", b"+](", b"=O)[", b"O-]", b"[C@@", b"H](", b"Cc1cc", b"cc1", b"C%1", b"2CC%12", b"2"),
    *(b"1</smiles>", b"\xc3", b"\xa9C", b"C\xf0\x9f", b"</smiles>", b"<smiles>"),
]


def test_tokens_of_several_atoms_half_a_bracket_or_part_of_a_character_are_their_text() -> None:
    tagged = Constraint("molecule", Seq((Text("<smiles>"), Molecule(), Text("</smiles>"))))
    fresh = token_trie(HOSTILE_TOKENS, len(HOSTILE_TOKENS))
    masks = TokenMasks(tagged, HOSTILE_TOKENS, fresh, MaskCache())
    rng = random.Random(6)
    row = np.zeros(-(-len(HOSTILE_TOKENS) // 32), dtype=np.int32)
    for _ in range(15):
        reader, text = TokenReader(masks, frozenset({0})), b""
        for step in range(200):
            reader.fill(row, 80 - step)
            bits = np.unpackbits(row.view(np.uint8), bitorder="little")
            ids = [int(i) for i in np.flatnonzero(bits) if i > 0]
            if not ids or (bits[0] and rng.random() < 0.3):
                break
            for token_id in ids:
                token = HOSTILE_TOKENS[token_id] or b""
                assert tagged.admits_prefix((text + token).decode()), (text, token)
            token_id = rng.choice(ids)
            assert reader.accept(token_id)
            text += HOSTILE_TOKENS[token_id] or b""
        assert tagged.matches(text.decode())


def test_kept_walks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "MAX_WALKS", 5)
    fresh = token_trie(TOKENS, len(TOKENS))
    for state in set(_prefixes(20)):
        MOLECULE.token_walk(state, fresh)
    assert len(masks._vocabularies[fresh].walks) == 5  # pyright: ignore[reportPrivateUsage]


def test_compiled_and_plain_automata_agree(trie: TokenTrie) -> None:
    compiled, plain = native.load_automaton(), native.PythonAutomaton()
    if not isinstance(compiled, native.NativeAutomaton):
        pytest.skip("the compiled automaton was not built")
    vocabulary = masks._Vocabulary(trie)  # pyright: ignore[reportPrivateUsage]
    last = len(vocabulary.end)
    assert compiled.begin() == plain.begin()
    for state in _prefixes(25):
        assert compiled.ending(state) == plain.ending(state)
        for char in "Cc(1)=[n<":
            assert compiled.advance(state, ord(char)) == plain.advance(state, ord(char))
    for state in _prefixes(6):
        ours = compiled.walk(state, vocabulary, 1, last).tolist()
        assert ours == plain.walk(state, vocabulary, 1, last).tolist()


def test_what_is_found_does_not_depend_on_what_is_remembered() -> None:
    used = native.load_automaton()
    for state in _prefixes(60):
        fresh = native.load_automaton()
        # An ending is written without what is remembered, its length is known with it.
        assert len(fresh.ending(state)) == MOLECULE.distance(state)
        for char in "Cc(1)=[n<2o":
            assert used.advance(state, ord(char)) == fresh.advance(state, ord(char))


def test_the_translation_to_c_compiles_without_a_warning(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "native.c"
    source.write_text(render_c(), encoding="utf-8")
    command = [compiler, "-O0", "-Wall", "-Wno-parentheses", "-Werror", "-shared", "-fPIC"]
    result = subprocess.run(
        [*command, "-o", str(tmp_path / "n.so"), str(source)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[:2000]


def test_a_library_that_was_built_from_other_sources_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not isinstance(native.load_automaton(), native.NativeAutomaton):
        pytest.skip("the compiled automaton was not built")
    monkeypatch.setattr(native, "sources_digest", lambda: 1)
    with pytest.warns(RuntimeWarning, match="built from other sources"):
        automaton = native.load_automaton()
    assert isinstance(automaton, native.PythonAutomaton)


def test_without_the_compiled_automaton_the_plain_one_reads() -> None:
    code = (
        "from rel_batch.constraints.molecules import Molecule, native;"
        "m = Molecule(); s = m.first();\nfor c in 'c1ccccc1': s = m.step(s, c)\n"
        "print(type(native.load_automaton()).__name__, m.is_final(s))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"REL_BATCH_PURE_PYTHON": "1", "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["PythonAutomaton", "True"]
