"""REL-C2: the largest connected motif that every molecule of a list contains.

Molecules of the catalogue are drawn around a fragment of one of them. An instance is kept only
if its largest common motif is one beyond dispute (`chem.fragments.common_motif`), is smaller
than every molecule, and is not drawn much oftener than others.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from rel_batch.chem.catalogue import catalogue, molecules_with
from rel_batch.chem.fragments import common_motif, cut_motif, num_heavy_atoms
from rel_batch.errors import ConfigError
from rel_batch.instances.generate.draft import Draft, Setting, fixed_rc
from rel_batch.instances.generate.isomers import render_list

MIN_MOLECULES, MAX_MOLECULES = 3, 50
_MAX_ATOMS = 24
_MIN_MOTIF_ATOMS, _MAX_MOTIF_ATOMS = 8, 16
_THINNING = 2

_PROMPT = """\
Given the following list of SMILES, what is the largest *connected* common chemical motif \
(maximum common substructure) present in every molecule?
Rules:
- The motif must be a single connected fragment.
- Do NOT tautomerize molecules.
- Ignore stereochemistry unless it is explicitly encoded and required.

SMILES:
{molecules}

Return your final answer as a single SMILES wrapped exactly like:
<smiles>YOUR_SMILES_HERE</smiles>
No explanation."""


def render_question(molecules: list[str]) -> str:
    """The question of REL-C2."""
    return _PROMPT.format(molecules=render_list(molecules))


def settings(
    task: str, rc: Iterable[int] | None, size: int | None, hold: str | None
) -> list[Setting]:
    """RC 2 and `size` molecules."""
    del hold
    num_molecules = 5 if size is None else size
    if not MIN_MOLECULES <= num_molecules <= MAX_MOLECULES:
        raise ConfigError(
            f"{task}: a question of {num_molecules} molecules cannot be made",
            hint=f"choose a size from {MIN_MOLECULES} to {MAX_MOLECULES}",
        )
    return [Setting(level, num_molecules) for level in fixed_rc(task, rc, 2)]


def draw(task: str, setting: Setting, number: int, rng: Random) -> Draft | None:
    """One instance, or None where the molecules drawn have no undisputed motif."""
    del task, number
    core = cut_motif(rng.choice(catalogue(_MAX_ATOMS)), _MIN_MOTIF_ATOMS, _MAX_MOTIF_ATOMS, rng)
    if core is None:
        return None
    family = molecules_with(core, _MAX_ATOMS)
    if len(family) < setting.size:
        return None
    chosen = rng.sample(family, setting.size)
    motif = common_motif(chosen)
    if motif is None or min(map(num_heavy_atoms, chosen)) <= motif.num_atoms:
        return None
    # Motifs that many molecules have are drawn often: thinned, or one reply would be right often.
    if rng.random() * len(molecules_with(motif.smiles, _MAX_ATOMS)) > _THINNING * setting.size:
        return None
    return Draft(
        question=render_question(chosen),
        answer={"molecules": chosen, "smiles": motif.smiles},
        metadata={
            "mcs_num_atoms": motif.num_atoms,
            "mcs_num_bonds": motif.num_bonds,
            "certificate": {"unique_in_size": True, "drawn_around": core},
        },
    )
