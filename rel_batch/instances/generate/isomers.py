"""REL-C1 and REL-C3: sets of constitutional isomers, out of completely enumerated universes.

C1 shows `size` molecules and asks whether they are isomers of each other; in half of the
instances one is an outlier. Most outliers have the same heavy atoms as the rest: four in five
differ in hydrogens only, one in ten in an element, and one in ten in size.

C3 shows some isomers of a formula and asks for all the rest, of which there are RC. The gold is
complete, since the universe is: the formula and its size are in the certificate.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from random import Random

from rel_batch.chem.universes import isomers, parse_formula, render_formula, unsaturation
from rel_batch.errors import ConfigError
from rel_batch.instances.generate.draft import Draft, Setting, fixed_rc

MIN_MOLECULES, MAX_MOLECULES = 3, 60
_MAX_MISSING = 150
_MAX_BREADTH = 8

_C1_PROMPT = """\
Is this list of molecules a set of *constitutional isomers* (same molecular formula, different \
connectivity)?

SMILES:
{molecules}

Return exactly one of:
<Yes>
or
<No>
No explanation."""

_C3_PROMPT = """\
Given the following list of constitutional isomers, complete the set by identifying the missing \
constitutional isomers.

Given SMILES:
{molecules}

Return the missing molecules as SMILES, one per line, each wrapped exactly like:
<smiles>YOUR_SMILES_HERE</smiles>
No explanation."""


def render_list(molecules: list[str]) -> str:
    """Numbered lines, as all the chemistry questions list molecules."""
    return "\n".join(f"{i}. {smiles}" for i, smiles in enumerate(molecules, 1))


@lru_cache(maxsize=1)
def formulas() -> tuple[str, ...]:
    """The formulas to draw from: hydrocarbons, or one kind of other atom, one to three times.

    As in the released files. Formulas with universes of more than some 250 isomers are left out.
    """
    others = [{}, *({e: n} for e in ("O", "N", "S", "F", "Cl", "Br") for n in (1, 2, 3))]
    found: list[str] = []
    for other in others:
        for carbons in range(2, 7):
            for hydrogens in range(2 * carbons + 6):
                counts = {"C": carbons, "H": hydrogens, **other}
                rings, heavy = unsaturation(counts), carbons + sum(other.values())
                if rings is None or not 3 <= heavy <= 6:
                    continue
                if heavy + rings + 2 * other.get("N", 0) <= _MAX_BREADTH:
                    found.append(render_formula(counts))
    return tuple(found)


def render_c1(molecules: list[str]) -> str:
    """The question of REL-C1."""
    return _C1_PROMPT.format(molecules=render_list(molecules))


def render_c3(molecules: list[str]) -> str:
    """The question of REL-C3."""
    return _C3_PROMPT.format(molecules=render_list(molecules))


def settings(
    task: str, rc: Iterable[int] | None, size: int | None, hold: str | None
) -> list[Setting]:
    """C1: RC 2 and `size` molecules. C3: RC missing molecules; `size` given ones, 0 for any."""
    if size is not None and not MIN_MOLECULES <= size <= MAX_MOLECULES:
        raise ConfigError(
            f"{task}: a question of {size} molecules cannot be made",
            hint=f"choose a size from {MIN_MOLECULES} to {MAX_MOLECULES}",
        )
    if task == "REL-C1":
        return [Setting(level, size or 5) for level in fixed_rc(task, rc, 2)]
    if hold == "length":
        raise ConfigError(
            f"{task}: cannot hold the length fixed: isomers differ in length",
            hint="hold entities (the number of given molecules) instead",
        )
    levels = [5] if rc is None else list(rc)
    for level in levels:
        if not 1 <= level <= _MAX_MISSING:
            raise ConfigError(
                f"{task}: {level} missing isomers cannot be asked for",
                hint=f"choose an RC from 1 to {_MAX_MISSING}",
            )
    if size is None and hold != "entities":
        return [Setting(level, 0) for level in levels]
    return [Setting(level, given) for level, given in _held(task, levels, size)]


def _held(task: str, levels: list[int], size: int | None) -> list[tuple[int, int]]:
    """One number of given molecules for which every level has a universe."""
    sizes = {len(isomers(formula)) for formula in formulas()}
    tried = range(5, MAX_MOLECULES + 1) if size is None else [size]
    for given in tried:
        if all(level + given in sizes for level in levels):
            return [(level, given) for level in levels]
    given = tried[0]
    possible = sorted(total - given for total in sizes if total - given >= 1)
    raise ConfigError(
        f"{task}: with one number of given molecules, no universe leaves each RC of {levels}",
        hint=f"with {given} given, the RC can be one of {', '.join(map(str, possible))}",
    )


def draw(task: str, setting: Setting, number: int, rng: Random) -> Draft | None:
    """One instance; on C1 Yes and No alternate. None where the formula drawn does not serve."""
    formula = rng.choice(formulas())
    if task == "REL-C1":
        return _draw_set(formula, setting.size, rng, isomeric=number % 2 == 0)
    return _draw_missing(formula, setting, rng)


def _draw_set(formula: str, size: int, rng: Random, *, isomeric: bool) -> Draft | None:
    universe = isomers(formula)
    if len(universe) < size:
        return None
    molecules = rng.sample(universe, size)
    certificate: dict[str, object] = {"formula": formula}
    if not isomeric:
        kind = rng.choices(["hydrogens", "element", "size"], [8, 1, 1])[0]
        other = _other_formula(formula, kind, rng)
        if other is None:
            return None
        outlier = rng.choice(isomers(other))
        molecules[0] = outlier
        certificate |= {"outlier": outlier, "outlier_formula": other, "outlier_differs_in": kind}
    rng.shuffle(molecules)
    label = "Yes" if isomeric else "No"
    return Draft(
        question=render_c1(molecules),
        answer={"molecules": molecules, "label": label},
        metadata={
            "formula" if isomeric else "base_formula": formula,
            "constructed_label": label,
            "certificate": certificate,
        },
    )


def _other_formula(formula: str, kind: str, rng: Random) -> str | None:
    """A formula of the pool that differs from `formula` in one way."""
    counts = parse_formula(formula)
    assert counts is not None
    others = [
        other for other in formulas() if other != formula and _difference(counts, other) == kind
    ]
    return rng.choice(others) if others else None


def _difference(counts: dict[str, int], other_formula: str) -> str | None:
    other = parse_formula(other_formula)
    assert other is not None
    change = {e: other.get(e, 0) - counts.get(e, 0) for e in counts.keys() | other.keys()}
    hydrogens = change.pop("H", 0)
    heavy = {e: n for e, n in change.items() if n}
    if not heavy:
        return "hydrogens" if abs(hydrogens) == 2 else None
    if sorted(heavy.values()) == [-1, 1] and abs(hydrogens) <= 2:
        return "element"
    return "size" if len(heavy) == 1 and abs(sum(heavy.values())) == 1 else None


def _draw_missing(formula: str, setting: Setting, rng: Random) -> Draft | None:
    universe = isomers(formula)
    given = len(universe) - setting.rc
    if given != setting.size if setting.size else not MIN_MOLECULES <= given <= MAX_MOLECULES:
        return None
    shown = rng.sample(universe, given)
    return Draft(
        question=render_c3(shown),
        answer={
            "molecules": shown,
            "missing_smiles": sorted(set(universe) - set(shown)),
        },
        metadata={
            "formula": formula,
            "universe_size": len(universe),
            "given_size": given,
            "certificate": {"formula": formula, "universe_size": len(universe)},
        },
    )
