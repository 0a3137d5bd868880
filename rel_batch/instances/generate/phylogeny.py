"""Trees of taxa, nucleotide sequences that evolve along them, and parsimony.

A tree is grown backwards in time by joining random pairs at the rates of a Yule process (Yule
1925), sequences evolve under the HKY85 model (Hasegawa, Kishino & Yano 1985), and
`parsimony_steps` is Fitch's count (Fitch 1971): the least number of changes that put a
character on the tree. One change fits the tree; with more the character is homoplastic (its
consistency index, 1 over the steps, is below 1).

    >>> tree = join(join(leaf("2"), leaf("3"), 1.0), join(leaf("4"), leaf("5"), 1.0), 2.0)
    >>> render_newick(tree)
    '((2:1.0000,3:1.0000):1.0000,(4:1.0000,5:1.0000):1.0000);'
    >>> parsimony_steps(tree, {"2", "3"}), parsimony_steps(tree, {"2", "4"})
    (1, 2)
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import accumulate
from math import exp
from random import Random

NUCLEOTIDES = "ACGT"
# HKY85: unequal base frequencies, and transitions kappa times as fast as transversions.
FREQUENCIES = (0.3, 0.2, 0.2, 0.3)
KAPPA = 2.0
_PURINE = (True, False, True, False)


@dataclass(frozen=True)
class Node:
    """A leaf (with a name) or an inner node (with two children) of a rooted, ultrametric tree.

    `height` is the expected number of substitutions a site from here to each leaf below.
    """

    height: float
    name: str = ""
    children: tuple[Node, ...] = ()

    def leaves(self) -> list[str]:
        return [node.name for node in self.nodes() if not node.children]

    def nodes(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


def leaf(name: str) -> Node:
    return Node(0.0, name)


def join(left: Node, right: Node, height: float) -> Node:
    return Node(height, children=(left, right))


def coalesce(lineages: list[Node], start: float, stop: float, rng: Random) -> Node:
    """Joins lineages in random pairs, at a Yule process's waiting times scaled to start..stop."""
    if len(lineages) == 1:
        return lineages[0]
    waits = [rng.expovariate(k) for k in range(len(lineages), 1, -1)]
    times = list(accumulate(waits))
    lineages = list(lineages)
    for time in times:
        left, right = (lineages.pop(rng.randrange(len(lineages))) for _ in range(2))
        lineages.append(join(left, right, start + (stop - start) * time / times[-1]))
    return lineages[0]


def render_newick(tree: Node) -> str:
    """The Newick string with branch lengths to four places, as in REL-B1."""

    def render(node: Node) -> str:
        if not node.children:
            return node.name
        parts = (f"{render(child)}:{node.height - child.height:.4f}" for child in node.children)
        return f"({','.join(parts)})"

    return render(tree) + ";"


def evolve(tree: Node, num_sites: int, rng: Random) -> dict[str, list[str]]:
    """The sequence of each leaf, from a random one at the root."""
    root = rng.choices(range(4), FREQUENCIES, k=num_sites)
    sequences: dict[str, list[str]] = {}
    waiting = [(tree, root)]
    while waiting:
        node, sequence = waiting.pop()
        if not node.children:
            sequences[node.name] = [NUCLEOTIDES[i] for i in sequence]
        for child in node.children:
            cumulative = [list(accumulate(row)) for row in transition(node.height - child.height)]
            # min: the last sum is 1 only up to rounding.
            changed = [min(3, bisect(cumulative[i], rng.random())) for i in sequence]
            waiting.append((child, changed))
    return sequences


def random_motif(length: int, rng: Random) -> str:
    return "".join(rng.choices(NUCLEOTIDES, FREQUENCIES, k=length))


def transition(length: float) -> list[list[float]]:
    """HKY85 probabilities of ending as j, from i, after `length` substitutions a site."""
    a, c, g, t = FREQUENCIES
    purines, pyrimidines = a + g, c + t
    beta = 1 / (2 * purines * pyrimidines + 2 * KAPPA * (a * g + c * t))
    slow = exp(-beta * length)
    rows: list[list[float]] = []
    for i in range(4):
        group = purines if _PURINE[i] else pyrimidines
        fast = exp(-beta * length * (1 + group * (KAPPA - 1)))
        row: list[float] = []
        for j, frequency in enumerate(FREQUENCIES):
            if _PURINE[i] != _PURINE[j]:
                row.append(frequency * (1 - slow))
            else:
                within = frequency + frequency * (1 / group - 1) * slow
                row.append(within + ((i == j) - frequency / group) * fast)
        rows.append(row)
    return rows


def parsimony_steps(tree: Node, having: Set[str]) -> int:
    """The least number of gains and losses that give exactly these leaves a character.

    Fitch's algorithm; 1 for a clade (or all but a clade), more for a homoplastic character.
    """
    steps = 0

    def states(node: Node) -> frozenset[bool]:
        nonlocal steps
        if not node.children:
            return frozenset({node.name in having})
        left, right = (states(child) for child in node.children)
        if left & right:
            return left & right
        steps += 1
        return left | right

    states(tree)
    return steps
