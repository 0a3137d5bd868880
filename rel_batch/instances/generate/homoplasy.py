"""REL-B1: which distantly related taxa share sequence motifs that the tree does not explain.

A tree of `size` taxa is drawn with two clades of k taxa in it (k is the RC), and sequences
evolve along it. Two groups of k taxa are then given common blocks of columns, the same number
of the same length each. In a No instance both groups are the clades: the blocks are homologous
and the tree explains them. In a Yes instance one group is k taxa of which no two share a
recent ancestor: their blocks are convergent. So an alignment alone shows the same in both, and
only the tree tells Yes from No, and which group is the answer.

The label is decidable: apart from the convergent blocks, no two taxa that meet above
`_RECENT` of the tree's height share a run of `block_len - _MARGIN` identical columns, while
convergent taxa all meet above it and share all their blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from random import Random

from rel_batch.errors import ConfigError
from rel_batch.instances.generate.draft import Draft, Setting
from rel_batch.instances.generate.phylogeny import (
    Node,
    coalesce,
    evolve,
    heights_of_meeting,
    leaf,
    parsimony_steps,
    random_motif,
    render_newick,
)

MIN_TAXA, MAX_TAXA = 6, 200
# Height of the tree in substitutions a site, the share of it below which taxa are kin, and
# the share below which a clade that is given blocks has joined.
_HEIGHT, _RECENT, _CLADE = 2.4, 0.3, 0.12
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
    num_taxa = max([12, *(3 * k for k in levels)]) if size is None else size
    if not MIN_TAXA <= num_taxa <= MAX_TAXA:
        raise ConfigError(
            f"{task}: an alignment of {num_taxa} taxa cannot be made",
            hint=f"choose a size from {MIN_TAXA} to {MAX_TAXA}",
        )
    for k in levels:
        if not 2 <= k <= num_taxa // 3:
            raise ConfigError(
                f"{task}: {k} homoplastic taxa do not fit a tree of {num_taxa}",
                hint=f"choose an RC from 2 to {num_taxa // 3} (a third of the taxa), or more taxa",
            )
    return [Setting(k, num_taxa) for k in levels]


def draw(task: str, setting: Setting, number: int, rng: Random) -> Draft | None:
    """One instance; Yes and No alternate. None where the draw is not decidable."""
    del task
    k, convergent = setting.rc, number % 2 == 0
    block_len, num_blocks, seq_len = _layout(setting.size)
    tree, clades = _draw_tree(setting.size, k, rng)
    meeting = heights_of_meeting(tree)
    group = _draw_distant(tree, k, meeting, rng) if convergent else clades[1]
    if group is None:
        return None
    sequences = evolve(tree, seq_len, rng)
    if _longest_distant_run(sequences, meeting) >= block_len - _MARGIN:
        return None
    starts = _draw_starts(2 * num_blocks, block_len, seq_len, rng)
    groups = [group, clades[0]]
    for i, start in enumerate(starts):
        motif = random_motif(block_len, rng)
        for name in groups[i % 2]:
            sequences[name][start : start + block_len] = motif
    if _longest_unexplained_run(sequences, meeting, group) >= block_len - _MARGIN:
        return None
    taxa = sorted(group, key=int) if convergent else []
    newick = render_newick(tree)
    alignment = "\n".join(
        f">{name}\n{''.join(sequences[name])}" for name in sorted(sequences, key=int)
    )
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
                "groups": [
                    {
                        "taxa": sorted(names, key=int),
                        "block_starts": starts[i::2],
                        "block_len": block_len,
                        "parsimony_steps": parsimony_steps(tree, set(names)),
                        "lowest_meeting": round(_lowest_meeting(names, meeting), 4),
                    }
                    for i, names in enumerate(groups)
                ],
                "kin_below": _RECENT * _HEIGHT,
            },
        },
    )


def _layout(num_taxa: int) -> tuple[int, int, int]:
    """Block length, blocks a group, and sequence length: long enough to stand out by far."""
    if num_taxa <= 12:
        return 12, 2, 84
    return (14, 3, 200) if num_taxa <= 30 else (16, 4, 300)


def _draw_tree(num_taxa: int, k: int, rng: Random) -> tuple[Node, list[list[str]]]:
    # As in the released files, leaves are numbered from 2: leaf 1 is the root.
    names = [str(i) for i in range(2, num_taxa + 2)]
    rng.shuffle(names)
    low, high = _CLADE * _HEIGHT, _HEIGHT
    clades = [
        coalesce(
            [leaf(name) for name in names[i * k : i * k + k]], 0.0, low * rng.uniform(0.5, 1), rng
        )
        for i in range(2)
    ]
    rest = [leaf(name) for name in names[2 * k :]]
    # Some of the rest are close kin too, so that nearness marks no clade out.
    while len(rest) > 2 * k and rng.random() < 0.8:
        pair = [rest.pop(rng.randrange(len(rest))) for _ in range(2)]
        if not any(node.children for node in pair):
            rest.append(coalesce(pair, 0.0, low * rng.uniform(0.5, 1), rng))
        else:
            rest.extend(pair)
            break
    return coalesce([*clades, *rest], low, high, rng), [clade.leaves() for clade in clades]


def _draw_distant(
    tree: Node, k: int, meeting: dict[frozenset[str], float], rng: Random
) -> list[str] | None:
    """k taxa that are no kin to each other and that parsimony gives k separate origins."""
    names = tree.leaves()
    rng.shuffle(names)
    chosen: list[str] = []
    for name in names:
        if all(meeting[frozenset({name, other})] > _RECENT * _HEIGHT for other in chosen):
            chosen.append(name)
            if parsimony_steps(tree, set(chosen)) < len(chosen):
                chosen.pop()
            elif len(chosen) == k:
                return chosen
    return None


def _draw_starts(number: int, block_len: int, seq_len: int, rng: Random) -> list[int]:
    """0-based starts of blocks that neither overlap nor touch, in random order."""
    gaps = sorted(rng.sample(range(seq_len - number * block_len + 1), number))
    starts = [gap + i * block_len for i, gap in enumerate(gaps)]
    rng.shuffle(starts)
    return starts


def _lowest_meeting(names: list[str], meeting: dict[frozenset[str], float]) -> float:
    return min(meeting[frozenset(pair)] for pair in combinations(names, 2))


def _longest_distant_run(
    sequences: dict[str, list[str]], meeting: dict[frozenset[str], float]
) -> int:
    return max(
        (
            longest_run(sequences[a], sequences[b])
            for a, b in combinations(sequences, 2)
            if meeting[frozenset({a, b})] > _RECENT * _HEIGHT
        ),
        default=0,
    )


def _longest_unexplained_run(
    sequences: dict[str, list[str]], meeting: dict[frozenset[str], float], group: list[str]
) -> int:
    members = set(group)
    return max(
        (
            longest_run(sequences[a], sequences[b])
            for a, b in combinations(sequences, 2)
            if meeting[frozenset({a, b})] > _RECENT * _HEIGHT and not {a, b} <= members
        ),
        default=0,
    )


def longest_run(one: list[str] | str, other: list[str] | str) -> int:
    """The longest run of columns in which two aligned sequences are identical."""
    best = run = 0
    for a, b in zip(one, other, strict=True):
        run = run + 1 if a == b else 0
        best = max(best, run)
    return best
