"""REL-C4: one motif out of each molecule, so that their group counts sum to a target.

Each molecule of the catalogue that is drawn has motifs with and without the group, so that the
answer is a choice. One choice is drawn; its sum is the target, which is thereby reachable.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from rel_batch.chem.catalogue import catalogue
from rel_batch.chem.fragments import cut_motif
from rel_batch.chem.groups import CONSTRAINT_TYPES, count_groups
from rel_batch.errors import ConfigError
from rel_batch.instances.generate.draft import Draft, Setting, no_hold
from rel_batch.instances.generate.isomers import render_list

MIN_MOLECULES, MAX_MOLECULES = 2, 60
_MIN_MOTIF_ATOMS = 6
_MAX_MOTIF_ATOMS = 20
_CUTS = 8


def settings(
    task: str, rc: Iterable[int] | None, size: int | None, hold: str | None
) -> list[Setting]:
    """One setting per RC: the RC is the number of molecules."""
    no_hold(task, hold, "its RC is the number of molecules")
    levels = [5 if size is None else size] if rc is None else list(rc)
    if size is not None and any(level != size for level in levels):
        raise ConfigError(
            f"{task}: the RC is the number of molecules, so size={size} contradicts rc={levels}",
            hint="leave one of the two out",
        )
    for level in levels:
        if not MIN_MOLECULES <= level <= MAX_MOLECULES:
            raise ConfigError(
                f"{task}: a question of {level} molecules cannot be made",
                hint=f"choose an RC from {MIN_MOLECULES} to {MAX_MOLECULES}",
            )
    return [Setting(level, level) for level in levels]


def draw(task: str, setting: Setting, number: int, rng: Random) -> Draft | None:
    """One instance, or None where the target drawn is 0."""
    del task, number
    kind = rng.choice(CONSTRAINT_TYPES)
    chosen: dict[str, str] = {}
    while len(chosen) < setting.size:
        smiles = rng.choice(catalogue())
        if smiles in chosen or not count_groups(kind, smiles):
            continue
        motifs = _motifs(smiles, rng)
        if len({count_groups(kind, motif) for motif in motifs}) > 1:
            chosen[smiles] = rng.choice(motifs)
    values = [count_groups(kind, motif) for motif in chosen.values()]
    target = sum(values)
    if not target:
        return None
    molecules, indices = list(chosen), list(range(setting.size))
    return Draft(
        question=render_question(molecules, kind, target),
        answer={
            "molecules": molecules,
            "selected_molecule_indices": indices,
            "selected_motifs": {str(i): motif for i, motif in enumerate(chosen.values())},
        },
        metadata={
            "constraint_type": kind,
            "target_value": target,
            "actual_total": target,
            "k_molecules": setting.size,
            "min_motif_atoms": _MIN_MOTIF_ATOMS,
            "values": values,
            "certificate": {"motif_values": values},
        },
    )


def _motifs(smiles: str, rng: Random) -> list[str]:
    drawn = (cut_motif(smiles, _MIN_MOTIF_ATOMS, _MAX_MOTIF_ATOMS, rng) for _ in range(_CUTS))
    return sorted({motif for motif in drawn if motif is not None})


def render_question(molecules: list[str], kind: str, target: int) -> str:
    """The question of REL-C4."""
    return _PROMPT.format(
        n=len(molecules),
        last=len(molecules) - 1,
        kind=kind,
        target=target,
        molecules=render_list(molecules),
    )


_PROMPT = """\
Given the following {n} molecules, identify one continuous motif from EACH molecule.

TASK:
1. From EACH of the {n} molecules below, extract one continuous motif (substructure)
2. Ensure the total count of {kind} across ALL motifs equals {target}

CONSTRAINTS:
- Each motif must be a VALID SMILES string (complete, parseable by RDKit)
- Each motif must be a substructure that actually exists in its parent molecule
- Each motif must contain at least 6 heavy atoms (non-hydrogen)
- The sum of {kind} across all selected motifs = {target}

CRITICAL VALIDATION RULES:
- SMILES must be COMPLETE - do NOT truncate or abbreviate
- RINGS MUST BE CLOSED: Every ring opening digit (1-9) must have a matching closing digit
  WRONG: 'CC12CCC(=O)C=C1' (ring 2 never closes) - INVALID SMILES
  RIGHT: 'CC12CCC(=O)C=C1CC2' (both rings 1 and 2 close properly)
- Each motif MUST be a continuous fragment that exists exactly as written in its parent molecule
- When extracting from complex fused rings, use simpler motifs if needed
- Count {kind} carefully - be specific about what counts
- Verify your sum equals {target} before submitting

MOLECULES:
{molecules}

STEP-BY-STEP APPROACH:
1. For EACH molecule, identify potential motifs (≥6 atoms)
2. Count {kind} in each motif candidate
3. Select one motif from each molecule such that the sum equals {target}
4. Note: Some motifs may have 0 {kind} - this is OK!
5. Extract the EXACT substructure from the parent - copy it precisely
6. Ensure SMILES is complete: all rings must be properly closed (e.g., c1ccccc1)
7. Final check: motif exists in parent AND sum equals {target}

FUNCTIONAL GROUP EXAMPLES (for reference):
- Ketone: C(=O)C or CC(=O)CC (carbonyl between two carbons)
- Carboxylic acid: C(=O)O or CC(=O)O
- Ester: C(=O)OC or CC(=O)OC
- Aldehyde: C(=O) at chain end
- Primary amine: CNH2 or CCN
- Alcohol: CO (hydroxyl on sp3 carbon)
- Aromatic ring: c1ccccc1 (benzene)

OUTPUT FORMAT (indices are 0-indexed, must include ALL molecules):
<indices>0,1,2</indices>
<motif_0>CCCCCC</motif_0>
<motif_1>c1ccccc1</motif_1>
<motif_2>CC(=O)O</motif_2>

FORMAT RULES:
- List ALL molecule indices in <indices> tag (0 through {last}), comma-separated
- For each index, provide complete motif SMILES in <motif_N> tag
- Do NOT use <smiles> tags - use <motif_N> where N is the molecule index
- SMILES must be COMPLETE (e.g., 'c1ccccc1' not 'c1ccc')

CRITICAL: To find {target} {kind}:
- You must provide a motif for EVERY molecule (all {n} molecules)
- Some motifs may have 0 {kind} - balance is key!
- Adjust motif selections so total = {target}

BEFORE SUBMITTING - VERIFY:
✓ Provided motif for ALL {n} molecules (indices 0 through {last})
✓ Each SMILES is complete and valid (all rings closed)
✓ Each motif exists in its parent molecule
✓ Count {kind} in each motif
✓ Sum of {kind} = {target} (NOT more, NOT less)

Provide ONLY the formatted answer above. No explanation."""
