"""REL-B1: the label follows from the tree and the alignment, and not from the alignment's runs."""

from __future__ import annotations

import re
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rel_batch.instances.generate import generate
from rel_batch.instances.generate.phylogeny import (
    FREQUENCIES,
    Node,
    coalesce,
    leaf,
    parsimony_steps,
    render_newick,
    transition,
)
from rel_batch.instances.shortcuts import SHORTCUTS


def read_depths(newick: str) -> dict[str, list[tuple[int, float]]]:
    """For each leaf, its ancestors from the root down: (id, distance from the root)."""
    lengths: dict[int, float] = {}
    parents: dict[int, int | None] = {0: None}
    names: dict[int, str] = {}
    current = last = 0
    for token in re.findall(r"[(),]|:[\d.]+|[^(),:;]+", newick):
        if token in "(,":
            parent = current if token == "(" else parents[last]
            assert parent is not None
            last = len(parents)
            parents[last] = parent
            current = last
        elif token == ")":
            above = parents[last]
            assert above is not None
            last = current = above
        elif token.startswith(":"):
            lengths[last] = float(token[1:])
        else:
            names[last] = token
    found: dict[str, list[tuple[int, float]]] = {}
    for node, name in names.items():
        path: list[int] = []
        at: int | None = node
        while at is not None:
            path.append(at)
            at = parents[at]
        depth, line = 0.0, []
        for step in reversed(path):
            depth += lengths.get(step, 0.0)
            line.append((step, depth))
        found[name] = line
    return found


def patristic_distances(newick: str) -> dict[frozenset[str], float]:
    paths = read_depths(newick)
    distances: dict[frozenset[str], float] = {}
    for a, b in combinations(paths, 2):
        shared = [x for x, y in zip(paths[a], paths[b], strict=False) if x == y]
        distances[frozenset({a, b})] = paths[a][-1][1] + paths[b][-1][1] - 2 * shared[-1][1]
    return distances


def solve(question: str, certificate: dict[str, Any]) -> set[str]:
    """The taxa of distant pairs that share a long run, from the question's tree and alignment."""
    sequences = dict(re.findall(r">(\S+)\n([ACGT]+)", question))
    newick = re.search(r"Tree \(Newick\):\s+(\S+)", question)
    assert newick
    distances = patristic_distances(newick[1])
    run = certificate["groups"][0]["block_len"] - 3
    found: set[str] = set()
    for a, b in combinations(sequences, 2):
        if distances[frozenset({a, b})] < 2 * certificate["families_join_above"] - 0.01:
            continue
        matches = "".join(
            "=" if x == y else "." for x, y in zip(sequences[a], sequences[b], strict=True)
        )
        if "=" * run in matches:
            found |= {a, b}
    return found


@pytest.mark.parametrize(("size", "rc"), [(12, [2, 3, 4]), (24, [2, 6]), (49, [13])])
def test_gold_is_the_distant_taxa_that_share_long_runs(size: int, rc: list[int]) -> None:
    for record in generate("REL-B1", rc=rc, size=size, per_level=4, seed=2):
        gold = set(record["answer"]["taxa"])
        assert solve(record["question"], record["metadata"]["certificate"]) == gold
        assert (record["answer"]["label"] == "yes") == bool(gold)


def test_each_convergent_taxon_is_a_gain_of_its_own_and_each_clade_one() -> None:
    for record in generate("REL-B1", rc=[2, 5], size=24, per_level=6, seed=4):
        first, second = record["metadata"]["certificate"]["groups"]
        is_yes = record["answer"]["label"] == "yes"
        assert first["parsimony_steps"] == (len(first["taxa"]) if is_yes else 1)
        assert second["parsimony_steps"] == 1
        assert len(first["taxa"]) == len(second["taxa"])


def test_the_longest_identical_run_is_rarely_the_answer() -> None:
    (longest_run,) = (s for s in SHORTCUTS["REL-B1"] if s.name == "longest identical run")
    records = [
        record
        for record in generate("REL-B1", rc=[2], size=24, per_level=100, seed=6)
        if record["answer"]["label"] == "yes"
    ]
    right = sum(
        set(longest_run.reply(record, Random(0)).removeprefix("Yes: ").split(", "))
        == set(record["answer"]["taxa"])
        for record in records
    )
    assert right <= len(records) / 2


@settings(max_examples=60, deadline=None)
@given(num_leaves=st.integers(2, 7), seed=st.integers(0, 10**6), data=st.data())
def test_parsimony_counts_the_fewest_changes_of_all_histories(
    num_leaves: int, seed: int, data: st.DataObject
) -> None:
    names = [str(i) for i in range(num_leaves)]
    tree = coalesce([leaf(name) for name in names], 0.0, 1.0, Random(seed))
    having = data.draw(st.sets(st.sampled_from(names)))
    inner = [node for node in tree.nodes() if node.children]

    def changes(states: dict[int, bool]) -> int:
        def state(node: Node) -> bool:
            return states[id(node)] if node.children else node.name in having

        return sum(state(node) != state(child) for node in inner for child in node.children)

    histories = product([False, True], repeat=len(inner))
    fewest = min(
        changes({id(node): value for node, value in zip(inner, history, strict=True)})
        for history in histories
    )
    assert parsimony_steps(tree, having) == fewest


@given(first=st.floats(0, 3), second=st.floats(0, 3))
def test_the_substitution_model_is_a_reversible_markov_process(first: float, second: float) -> None:
    one, two, both = transition(first), transition(second), transition(first + second)
    for i, j in product(range(4), repeat=2):
        chained = sum(one[i][k] * two[k][j] for k in range(4))
        assert chained == pytest.approx(both[i][j])
        assert FREQUENCIES[i] * one[i][j] == pytest.approx(FREQUENCIES[j] * one[j][i])


def test_branch_lengths_are_expected_substitutions_a_site() -> None:
    step = transition(1e-6)
    rate = sum(FREQUENCIES[i] * (1 - step[i][i]) for i in range(4)) / 1e-6
    assert rate == pytest.approx(1, rel=1e-4)


@given(seed=st.integers(0, 10**6))
def test_trees_are_ultrametric_and_newick_keeps_every_leaf(seed: int) -> None:
    names = [str(i) for i in range(2, 12)]
    tree = coalesce([leaf(name) for name in names], 0.0, 2.0, Random(seed))
    paths = read_depths(render_newick(tree))
    assert set(paths) == set(names)
    assert all(path[-1][1] == pytest.approx(2.0, abs=0.01) for path in paths.values())
