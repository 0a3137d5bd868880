"""Precision, recall and F1 of a predicted set against gold: the one home of these formulas.

    >>> set_overlap({"18", "28"}, {"18"})
    Overlap(precision=0.5, recall=1.0, f1=0.6666666666666666)

Each is 0 where its denominator is 0. The sets are of values that are equal when they mean the
same thing: taxon names, canonical SMILES.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from typing import NamedTuple


class Overlap(NamedTuple):
    """Three shares in [0, 1]."""

    precision: float
    recall: float
    f1: float


def set_overlap(predicted: Set[Hashable], gold: Set[Hashable]) -> Overlap:
    """How well `predicted` agrees with `gold`."""
    hits = len(predicted & gold)
    precision = hits / len(predicted) if predicted else 0.0
    recall = hits / len(gold) if gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    return Overlap(precision, recall, f1)
