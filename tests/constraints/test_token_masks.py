"""A mask admits exactly the tokens that some admitted text goes on with, and the budget is kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest
import readers
from cases import CASES, HOSTILE_NAMES, Case

from rel_batch.constraints import Chars, Constraint, OneOf, Repeat, Seq, Subset, Text, texts
from rel_batch.constraints.encoding import decode, encode
from rel_batch.constraints.token_masks import MaskCache, TokenMasks, TokenReader
from rel_batch.constraints.vocabulary import VocabularyError, token_bytes, token_trie

EOS = 0
# Whole characters, parts of characters, tokens across the ends of tags, duplicates, no bytes.
TOKENS: list[bytes | None] = [
    None, b"", *(bytes((b,)) for b in range(256)),
    b"Yes: ", b"No", b"<smiles>", b"</smiles>", b"smiles", b"C</", b"CC(", b"c1ccccc1",
    b")C", b"=O",
    b"1, 1", b", ", b"12", b"2, ", b"12", b"ab", b"abab", b"(a", b"))", b"<Y", b"<Yes>", b"<N",
    "é".encode(), "日本".encode(), "日".encode()[:2], "日".encode()[1:], "本".encode()[2:] + b",",
    "😀".encode()[:3], "😀".encode()[1:3], b"\x80\xff", b"a b", b" lead", b"// ", b"C%1",
    b"[C@@H](",
]  # fmt: skip
TRIE = token_trie(TOKENS, len(TOKENS) + 7)
SETS = (
    Case("a set", Constraint("set", Subset(("1", "12", "2", "1, 2"), ", ")), (), (), ()),
    Case("hostile set", Constraint("set", Subset(HOSTILE_NAMES, ", ")), (), (), ()),
    Case("wide characters", Constraint("format", Repeat(Chars("aé日本😀"), 1, 4)), (), (), ()),
    Case("a long text", Constraint("format", OneOf((Text("ok"), Text("x" * 40)))), (), (), ()),
)
every_case = pytest.mark.parametrize("case", [*CASES, *SETS], ids=lambda case: case.name)


def masks_of(constraint: Constraint, cache: MaskCache | None = None) -> TokenMasks:
    return TokenMasks(constraint, TOKENS, TRIE, cache or MaskCache())


def row() -> np.ndarray:
    return np.full((TRIE.num_rows + 31) // 32, -1, dtype=np.int32)


def admitted(reader: TokenReader, tokens_left: int | None = None) -> list[int]:
    bits = row()
    reader.fill(bits, tokens_left)
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()


def admits_bytes(constraint: Constraint, text: bytes) -> bool:
    """Whether some admitted text begins with these bytes, the slow way."""
    for cut in range(4):
        try:
            whole = text[: len(text) - cut].decode()
        except UnicodeDecodeError:
            continue
        partial = text[len(text) - cut :]
        if not partial:
            return constraint.admits_prefix(whole)
        lead = partial[0]
        length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2
        if not 0xC2 <= lead < 0xF5 or len(partial) >= length:
            return False
        alphabet = {c for name in (*HOSTILE_NAMES, "aé日本😀") for c in name}
        return any(
            c.encode().startswith(partial) and constraint.admits_prefix(whole + c) for c in alphabet
        )
    return False


@every_case
def test_a_mask_admits_exactly_the_tokens_that_go_on(case: Case) -> None:
    masks = masks_of(case.constraint)
    rng = random.Random(1)
    for _ in range(6):
        reader = TokenReader(masks, frozenset({EOS}))
        text = b""
        for _ in range(8):
            allowed = admitted(reader)
            expected = [
                token_id
                for token_id, token in enumerate(TOKENS)
                if token and admits_bytes(case.constraint, text + token)
            ]
            is_whole = _decodes(text) and case.constraint.matches(text.decode())
            assert allowed == ([EOS] if is_whole else []) + expected
            onward = [token_id for token_id in allowed if token_id != EOS]
            if not onward:
                break
            token_id = rng.choice(onward)
            assert reader.accept(token_id)
            text += TOKENS[token_id] or b""


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@every_case
@pytest.mark.parametrize("budget", [None, 0, 3])
def test_random_walks_end_in_time(case: Case, budget: int | None) -> None:
    """From any beginning the text ends within the tokens that are left, if that is possible."""
    machine = masks_of(case.constraint)
    rng = random.Random(2)
    for _ in range(15):
        reader = TokenReader(machine, frozenset({EOS}))
        text, left = b"", 60 if budget is None else 45 + budget
        while not reader.is_terminated:
            allowed = admitted(reader, left)
            assert allowed, text
            # The longest way, and the stop token last, press hardest against the limit.
            token_id = rng.choice([t for t in allowed if t != EOS] or allowed)
            assert reader.accept(token_id)
            text += TOKENS[token_id] or b""
            left -= 1
            assert left >= 0, text
        assert case.constraint.matches(text.decode())


def test_where_no_end_is_in_reach_the_nearest_way_is_taken() -> None:
    reader = TokenReader(
        masks_of(Constraint("format", texts(("yyyy", "xxxxxxx")))), frozenset({EOS})
    )
    assert admitted(reader, tokens_left=2) == [TOKENS.index(b"y")]


def test_a_stop_token_ends_only_what_may_end_and_nothing_follows_it() -> None:
    reader = TokenReader(masks_of(Constraint("format", Text("ab"))), frozenset({EOS, 1}))
    assert not reader.accept(EOS)
    assert reader.accept(TOKENS.index(b"ab"))
    assert admitted(reader) == [EOS, 1]
    assert reader.accept(1)
    assert reader.is_terminated
    assert not reader.accept(EOS)
    assert not reader.accept(TOKENS.index(b"a"))


def test_rollback_returns_to_where_it_was() -> None:
    reader = TokenReader(masks_of(SETS[0].constraint), frozenset({EOS}))
    trail = [admitted(reader)]
    for token in (b"12", b", ", b"2"):
        assert reader.accept(TOKENS.index(token))
        trail.append(admitted(reader))
    assert reader.accept(EOS)
    reader.rollback(1)
    assert not reader.is_terminated
    for taken in (3, 2, 1, 0):
        assert admitted(reader) == trail[taken]
        reader.rollback(1 if taken else 0)


def test_ids_outside_the_vocabulary_are_refused() -> None:
    reader = TokenReader(masks_of(Constraint("format", Text("ab"))), frozenset({EOS}))
    assert not any(reader.accept(token_id) for token_id in (-1, 1, len(TOKENS), 10**6))


def test_a_machine_that_forgets_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rel_batch.constraints.token_masks.MAX_MACHINE_STATES", 3)
    masks = masks_of(SETS[0].constraint)
    first = TokenReader(masks, frozenset({EOS}))
    for token in (b"12", b", ", b"2"):
        assert first.accept(TOKENS.index(token))
    before = admitted(first)
    generation = masks.generation
    TokenReader(masks, frozenset({EOS}))
    assert masks.generation > generation
    assert admitted(first) == before
    first.rollback(2)
    assert first.accept(TOKENS.index(b", "))


def test_the_cache_stays_within_its_bytes_and_changes_nothing() -> None:
    small = MaskCache(max_bytes=2_000)
    for case in CASES:
        one, other = masks_of(case.constraint, small), masks_of(case.constraint)
        for _ in range(2):
            readers_of = [TokenReader(masks, frozenset({EOS})) for masks in (one, other)]
            for _ in range(5):
                allowed = admitted(readers_of[0])
                assert allowed == admitted(readers_of[1])
                onward = [t for t in allowed if t != EOS]
                if not onward:
                    break
                assert all(reader.accept(onward[-1]) for reader in readers_of)
    assert small._num_bytes <= 2_000  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("vocabulary", [259, 400])
def test_the_bytes_of_a_byte_level_vocabulary(vocabulary: int) -> None:
    tokenizer = readers.byte_level_tokenizer(vocabulary, ["Yes: taxon_1, <smiles>日本 é"] * 20)
    tokens = token_bytes(tokenizer)
    assert tokens[tokenizer.eos_token_id] is None
    for text in ("a b\n", "日本語 é", "<smiles>C(=O)O</smiles>", " x"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(tokens[i] or b"" for i in ids) == text.encode()


def test_a_vocabulary_that_cannot_be_read_is_refused() -> None:
    class Words:
        def get_vocab(self) -> dict[str, int]:
            return {"hello": 0, "world": 1}

        added_tokens_decoder: ClassVar[dict[int, object]] = {}
        all_special_ids: ClassVar[Sequence[int]] = ()

    with pytest.raises(VocabularyError, match="neither byte-level nor byte-fallback"):
        token_bytes(Words())


def test_the_trie_holds_every_token_once_and_its_restriction_too() -> None:
    def texts_below(byte: np.ndarray, end: np.ndarray, at: Sequence[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        path: list[tuple[int, bytes]] = [(len(byte), b"")]
        for node in range(len(byte)):
            while node >= path[-1][0]:
                path.pop()
            text = path[-1][1] + (bytes((int(byte[node]),)) if node else b"")
            path.append((int(end[node]), text))
            found |= {int(t): text for t in TRIE.tokens_at(int(at[node]))}
        return found

    whole = texts_below(TRIE.byte, TRIE.end, range(len(TRIE.byte)))
    assert whole == {i: token for i, token in enumerate(TOKENS) if token}
    sub = TRIE.restrict("abC=O(12)")
    assert texts_below(sub.byte, sub.end, sub.full_node.tolist()) == {
        i: token for i, token in enumerate(TOKENS) if token and set(token) <= set(b"abC=O(12)")
    }
    assert TRIE.restrict("abC=O(12)") is sub


@every_case
def test_a_constraint_comes_back_from_its_encoding(case: Case) -> None:
    text = encode(case.constraint)
    assert decode(text) == case.constraint
    assert text.isascii()
    assert "\n" not in text


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"kind":"format","expression":["Path","x"],"rules":[]}',
     '{"kind":"format","expression":["Text"],"rules":[]}', "[" * 100_000,
     '{"kind":"format","expression":"Text","rules":[]}'],
)  # fmt: skip
def test_what_is_no_encoding_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(text)


def test_a_budget_counts_what_follows_the_leaf() -> None:
    constraint = Constraint("set", Seq((Text("<"), Subset(("a", "bbb"), ","), Text("></end>"))))
    reader = TokenReader(masks_of(constraint), frozenset({EOS}))
    assert reader.accept(TOKENS.index(b"<"))
    # b b b > < / e n d > and the stop token
    assert TOKENS.index(b"b") in admitted(reader, tokens_left=11)
    assert TOKENS.index(b"b") not in admitted(reader, tokens_left=10)


def test_a_molecule_comes_back_from_its_encoding_and_is_masked() -> None:
    from rel_batch.constraints.molecules import Molecule

    tag = Constraint("molecule", Seq((Text("<smiles>"), Molecule(), Text("</smiles>"))))
    assert decode(encode(tag)) == tag
    reader = TokenReader(masks_of(tag), frozenset({EOS}))
    for token in (b"<smiles>", b"c1ccccc1"):
        assert reader.accept(TOKENS.index(token))
    allowed = admitted(reader)
    assert TOKENS.index(b"C</") in allowed
    assert TOKENS.index(b")C") not in allowed
    # c1ccccc1 ends with 9 bytes of the tag and the stop token.
    assert TOKENS.index(b"C</") not in admitted(reader, tokens_left=8)
    assert TOKENS.index(b"</smiles>") in admitted(reader, tokens_left=2)


def test_a_mask_of_many_tokens_is_whole_and_ends_with_the_models_row() -> None:
    """The tokenizer knows more tokens than the model has outputs; the row here has spare words."""
    tokens: list[bytes | None] = [str(number).encode() for number in range(2_000)]
    trie = token_trie(tokens, 1_500)
    constraint = Constraint("format", Repeat(Chars("0123456789"), 3, 4))
    reader = TokenReader(TokenMasks(constraint, tokens, trie, MaskCache()), frozenset())
    for num_words in (47, 50):
        for _ in range(2):  # met for the first time, and kept
            for tokens_left, least in ((None, 0), (4, 0), (2, 100)):
                bits = np.full(num_words, -1, dtype=np.int32)
                reader.fill(bits, tokens_left)
                found = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
                assert found.tolist() == list(range(least, 1_500)), (num_words, tokens_left)
