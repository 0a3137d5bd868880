"""Checks the molecules of a chemistry record when it is read.

A molecule that scores are made of is read in full. Others are checked by syntax alone, a tenth of
the cost, as a release has some 100,000 of them: one that RDKit still cannot read has no motif and
is no isomer. Both checks are remembered, as records share molecules.
"""

from __future__ import annotations

from typing import Any

from rel_batch.tasks.task import FieldError, RawRecord


def check_listed(record: RawRecord) -> list[str]:
    """The molecules that the question shows. Raises FieldError."""
    molecules = check_syntax("answer.molecules", record.answer.get("molecules"))
    for index, smiles in enumerate(molecules):
        if smiles not in record.question:
            raise FieldError(
                f"answer.molecules[{index}]", f"{smiles!r:.100} is not in the question"
            )
    return molecules


def check_syntax(field: str, value: Any) -> list[str]:
    """A field's strings, each SMILES by its syntax. Raises FieldError."""
    from rel_batch.chem.molecules import is_smiles

    molecules = _strings(field, value)
    for index, smiles in enumerate(molecules):
        if not is_smiles(smiles):
            raise FieldError(f"{field}[{index}]", f"not a SMILES: {smiles!r:.100}")
    return molecules


def check_molecules(field: str, value: Any) -> list[str]:
    """A field's strings, each a molecule that RDKit reads. Raises FieldError."""
    from rel_batch.chem.molecules import canonical_form

    molecules = _strings(field, value)
    for index, smiles in enumerate(molecules):
        if canonical_form(smiles) is None:
            raise FieldError(f"{field}[{index}]", f"RDKit refuses the SMILES {smiles!r:.100}")
    return molecules


def _strings(field: str, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not value:
        raise FieldError(field, f"expected a non-empty array of SMILES, found {value!r:.80}")
    items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise FieldError(f"{field}[{index}]", f"expected a string, found {item!r:.80}")
    return items
