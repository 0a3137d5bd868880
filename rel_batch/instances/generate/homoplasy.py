"""REL-B1: which distantly related taxa share sequence motifs that the tree does not explain.

A tree of `size` taxa is drawn with two clades of k taxa in it (k is the RC), and sequences
evolve along it. Two groups of k taxa are then given common blocks of columns, the same number
of the same length each. In a No instance both groups are the clades: the blocks are homologous
and the tree explains them. In a Yes instance one group is k taxa out of k different families
(clades of close kin), each a gain of its own by parsimony: their blocks are convergent. So the
shared blocks alone look the same in both, and the tree tells Yes from No, and which group is
the answer.

The label is decidable: two taxa of different families share a run of `block_len - _MARGIN`
identical columns only where both are convergent, and convergent taxa share all their blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from rel_batch.errors import ConfigError
from rel_batch.instances.generate.draft import Draft, Setting
from rel_batch.instances.generate.phylogeny import (
    Node,
    coalesce,
    evolve,
    leaf,
    parsimony_steps,
    random_motif,
    render_newick,
)

MIN_TAXA, MAX_TAXA = 8, 200
# Expected substitutions a site from a leaf up to the root, and the highest ancestor of a
# family; families join only above twice that.
_ROOT, _FAMILY = 2.4, 0.35
_MARGIN = 3

_PROMPT = """
        Homoplasy refers to structured convergence:
        pairs or groups of distantly related taxa that repeatedly share the same nucleotide motifs
        across many independent alignment columns more often than expected, while other taxa
        with similar overall sequences do not share those nucleotide motifs as consistently.

        Your job is to examine the entire alignment and provided tree and decide whether such structured
        homoplasy is likely to be present and which taxa are involved.

        Alignment (FASTA; positions indexed from 1):
        {alignment}

        Tree (Newick):
        {tree}

        Return your answer as: Yes/No and if Yes, list the taxa involved. Nothing else.

    """  # noqa: E501


def settings(
    task: str, rc: Iterable[int] | None, size: int | None, hold: str | None
) -> list[Setting]:
    """One setting per RC, all with one number of taxa, so that entities and length are held."""
    del hold
    levels = [2] if rc is None else list(rc)
    num_taxa = max([12, *(4 * k for k in levels)]) if size is None else size
    if not MIN_TAXA <= num_taxa <= MAX_TAXA:
        raise ConfigError(
            f"{task}: an alignment of {num_taxa} taxa cannot be made",
            hint=f"choose a size from {MIN_TAXA} to {MAX_TAXA}",
        )
    most = num_taxa // 4 + 1
    for k in levels:
        if not 2 <= k <= most:
            raise ConfigError(
                f"{task}: {k} homoplastic taxa do not fit a tree of {num_taxa}",
                hint=f"choose an RC from 2 to {most}, or a size of at least {4 * (k - 1)} taxa",
            )
    return [Setting(k, num_taxa) for k in levels]


def draw(task: str, setting: Setting, number: int, rng: Random) -> Draft | None:
    """One instance; Yes and No alternate. None where the draw is not decidable."""
    del task
    k, convergent = setting.rc, number % 2 == 0
    block_len, num_blocks, seq_len = _layout(setting.size)
    tree, families = _draw_tree(setting.size, k, rng)
    group = _draw_distant(tree, families, k, rng) if convergent else families[1]
    if group is None:
        return None
    groups = [group, families[0]]
    sequences = evolve(tree, seq_len, rng)
    starts = _draw_starts(2 * num_blocks, block_len, seq_len, rng)
    for i, start in enumerate(starts):
        motif = random_motif(block_len, rng)
        for name in groups[i % 2]:
            sequences[name][start : start + block_len] = motif
    aligned = {name: "".join(sequences[name]) for name in sorted(sequences, key=int)}
    if not _is_decidable(aligned, families, group if convergent else [], block_len - _MARGIN):
        return None
    taxa = sorted(group, key=int) if convergent else []
    newick = render_newick(tree)
    alignment = "\n".join(f">{name}\n{sequence}" for name, sequence in aligned.items())
    return Draft(
        question=_PROMPT.format(alignment=alignment, tree=newick),
        answer={"label": "yes" if convergent else "no", "taxa": taxa},
        metadata={
            "tree": newick,
            "seq_len": seq_len,
            "n_blocks": num_blocks if convergent else 0,
            "block_len": block_len if convergent else 0,
            "num_taxa": len(taxa),
            "n_sequences": setting.size,
            "taxa_identifier": "name_as_printed_in_FASTA",
            "taxa_names": taxa,
            "leaf1_in_alignment": False,
            "certificate": {
                "model": "HKY85",
                "families_join_above": 2 * _FAMILY,
                "groups": [
                    {
                        "taxa": sorted(names, key=int),
                        "block_starts": sorted(starts[i::2]),
                        "block_len": block_len,
                        "parsimony_steps": parsimony_steps(tree, set(names)),
                    }
                    for i, names in enumerate(groups)
                ],
            },
        },
    )


def _layout(num_taxa: int) -> tuple[int, int, int]:
    """Block length, blocks a group, and sequence length: long enough to stand out by far."""
    if num_taxa <= 12:
        return 12, 2, 84
    return (14, 3, 200) if num_taxa <= 30 else (16, 4, 300)


def _draw_tree(num_taxa: int, k: int, rng: Random) -> tuple[Node, list[list[str]]]:
    """A tree and the leaves of its families, of which the first two have k."""
    # As in the released files, leaves are numbered from 2: leaf 1 is the root.
    names = [str(i) for i in range(2, num_taxa + 2)]
    rng.shuffle(names)
    families = [names[:k], names[k : 2 * k]]
    # k - 2 families of at least two, so that k taxa of different families always exist; the
    # rest join any of these or stay alone.
    rest = names[2 * k :]
    others = [[rest.pop(), rest.pop()] for _ in range(min(k - 2, len(rest) // 2))]
    for name in rest:
        if others and rng.random() < 0.5:
            rng.choice(others).append(name)
        else:
            others.append([name])
    families += others
    clades = [
        coalesce([leaf(name) for name in family], 0.0, _FAMILY * rng.uniform(0.5, 1), rng)
        for family in families
    ]
    return coalesce(clades, 2 * _FAMILY, _ROOT, rng), families


def _draw_distant(tree: Node, families: list[list[str]], k: int, rng: Random) -> list[str] | None:
    """k taxa of different families that parsimony gives k separate origins."""
    chosen: list[str] = []
    for family in rng.sample(families, len(families)):
        chosen.append(rng.choice(family))
        if parsimony_steps(tree, set(chosen)) < len(chosen):
            chosen.pop()
        elif len(chosen) == k:
            return chosen
    return None


def _draw_starts(number: int, block_len: int, seq_len: int, rng: Random) -> list[int]:
    """0-based starts of blocks that do not overlap, in random order."""
    gaps = sorted(rng.sample(range(seq_len - number * block_len + 1), number))
    starts = [gap + i * block_len for i, gap in enumerate(gaps)]
    rng.shuffle(starts)
    return starts


def _is_decidable(
    aligned: dict[str, str], families: list[list[str]], convergent: list[str], length: int
) -> bool:
    """Whether taxa of different families share `length` columns only where both are convergent."""
    family_of = {name: i for i, family in enumerate(families) for name in family}
    members = set(convergent)
    for words in shared_words(aligned, length):
        for names in words:
            if len({family_of[name] for name in names}) > 1 and not members.issuperset(names):
                return False
    return True


def shared_words(aligned: dict[str, str], length: int) -> Iterator[list[list[str]]]:
    """For each column, the groups of two or more taxa that are identical from there on."""
    seq_len = len(next(iter(aligned.values())))
    for start in range(seq_len - length + 1):
        by_word: dict[str, list[str]] = {}
        for name, sequence in aligned.items():
            by_word.setdefault(sequence[start : start + length], []).append(name)
        yield [names for names in by_word.values() if len(names) > 1]
