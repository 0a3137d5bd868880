"""Gold without the known faults of the released data: what the `audited` scorer compares with.

C3: every isomer that the question does not give, out of the complete universe of its formula. C2:
any connected motif of every molecule that is as large as the largest, by bonds or by atoms, since
"largest" says neither. All other gold is audited gold already.

Surprising: where a universe is too large to be enumerated, or a search for motifs does not end, the
stored gold stands; an audited verdict is never stricter on REL-C2 than the strict one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rel_batch.errors import ConfigError
from rel_batch.records import Instance, Score


@lru_cache(maxsize=512)
def universe_of(formula: str) -> frozenset[str] | None:
    """All isomers of a formula as canonical forms; None where they cannot be enumerated."""
    from rel_batch.chem.universes import isomers

    try:
        return frozenset(isomers(formula))
    except ConfigError:
        return None


def with_all_missing(instance: Instance) -> Instance:
    """A REL-C3 instance whose gold is complete; itself where that cannot be said."""
    missing = _all_missing(tuple(instance.answer["molecules"]))
    if missing is None:
        return instance
    return replace(instance, answer={**instance.answer, "missing_smiles": missing})


@lru_cache(maxsize=2_048)
def _all_missing(given: tuple[str, ...]) -> tuple[str, ...] | None:
    from rel_batch.chem.molecules import canonical_forms, formula

    formulas = {formula(smiles) for smiles in given}
    (name,) = formulas if len(formulas) == 1 else (None,)
    universe = None if name is None else universe_of(name)
    if universe is None:
        return None
    # Nothing is missing from a universe that is given whole: then the stored gold stands.
    return tuple(sorted(universe - set(canonical_forms(given).values()))) or None


def with_every_motif(instance: Instance, score: Score) -> Score:
    """A REL-C2 score, correct where the answer is another motif as large as the largest."""
    if score.failure != "wrong_molecule":
        return score
    molecules = tuple(instance.answer["molecules"])
    return Score("correct", score.prediction) if _is_largest(molecules, score.prediction) else score


def _is_largest(molecules: tuple[str, ...], smiles: str) -> bool:
    from rel_batch.chem.fragments import largest_motifs
    from rel_batch.chem.substructures import is_in

    # First what is cheap: most answers are not in every molecule.
    if not all(is_in(smiles, molecule) for molecule in molecules):
        return False
    largest = largest_motifs(molecules)
    return largest is not None and largest.is_proven and largest.reached_by(smiles)
