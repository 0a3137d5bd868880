"""What the assisted rung `formula` leaves to choose from.

    >>> leaf = missing_isomers(("CCO",), "<s>", "</s>")
    >>> leaf.text_form()
    "'<s>' (each at most once, written in any way: 'COC') '</s>', separated by '\\\\n'"

REL-C3: the isomers that are not given, each once. REL-C2 and C4: substructures of one molecule.
This hands the model a part of the answer on purpose: it measures what is left to reason when no
invalid, repeated or foreign molecule can be written, and never counts as a score.

Surprising: where there is nothing to choose from, the expression is `Nothing` with the reason; it
is found when constraints are compiled, before anything is decoded.
"""

# RDKit is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from functools import lru_cache

from rdkit import Chem

from rel_batch.chem.molecules import canonical_form, formula
from rel_batch.chem.substructure_leaf import Substructure, has_substructure
from rel_batch.chem.universes import isomers
from rel_batch.constraints.expressions import Expression, Nothing
from rel_batch.constraints.molecules import NewMolecules
from rel_batch.errors import ConfigError

# Every way to write each of them is followed at once: a first mask would take seconds beyond this.
# REL-C3 has 8 to 97 isomers to a formula.
MAX_ISOMERS = 1_000


@lru_cache(maxsize=1_024)
def missing_isomers(
    given: tuple[str, ...], opening: str, closing: str, separator: str = "\n"
) -> Expression:
    """The isomers of the given molecules that are not given, one or more, each at most once."""
    formulas = sorted({str(formula(smiles)) for smiles in given})
    if len(formulas) != 1:
        return Nothing(f"the given molecules have no one formula, but {', '.join(formulas)}")
    try:
        universe = isomers(formulas[0])
    except ConfigError as error:
        return Nothing(str(error))
    known = {canonical_form(smiles) for smiles in given}
    left = len(universe) - sum(smiles in known for smiles in universe)
    if not left:
        return Nothing(f"no molecule of the formula {formulas[0]} is missing: all are given")
    if len(universe) > MAX_ISOMERS:
        return Nothing(
            f"the formula {formulas[0]} has {len(universe):,} isomers, more than the "
            f"{MAX_ISOMERS:,} that the constraint 'formula' can follow"
        )
    # All of them, the given ones as written: questions of one formula share what is remembered.
    molecules = tuple(bond_placements(smiles) for smiles in universe)
    numbers = tuple(number for number, smiles in enumerate(universe) if smiles in known)
    return NewMolecules(molecules, opening, closing, separator, numbers)


@lru_cache(maxsize=1_024)
def substructure_of(molecule: str, min_atoms: int) -> Expression:
    """One connected substructure of the molecule with at least `min_atoms` heavy atoms."""
    form = canonical_form(molecule)
    if form is None:
        return Nothing(f"RDKit does not read {molecule!r:.200}")
    if not has_substructure(form, min_atoms):
        return Nothing(f"no substructure of {molecule} with {min_atoms} atoms was found")
    return Substructure(form, min_atoms)


@lru_cache(maxsize=4_096)
def bond_placements(smiles: str) -> tuple[str, ...]:
    """SMILES of one molecule, one for each way to place its bonds: aromatic, and each Kekulé form.

    >>> bond_placements("c1ccoc1")
    ('c1ccoc1', 'C1=COC=C1')
    """
    molecule = Chem.MolFromSmiles(smiles)
    forms = {smiles: None}
    if any(atom.GetIsAromatic() for atom in molecule.GetAtoms()):
        for form in Chem.ResonanceMolSupplier(molecule, Chem.KEKULE_ALL):
            Chem.Kekulize(form, clearAromaticFlags=True)
            forms[Chem.MolToSmiles(form, kekuleSmiles=True)] = None
    return tuple(form for form in forms if canonical_form(form) == canonical_form(smiles))
