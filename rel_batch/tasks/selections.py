"""Reads and checks the answer of REL-C4: one motif for each molecule.

    >>> read_selection("<indices>0</indices><motif_0>CCCCCC</motif_0>", cut=False)
    MotifSelection(indices=(0,), motifs=((0, 'CCCCCC'),))

The last `<indices>` and the motifs after it are the answer. Brackets around the indices are read,
and so is the same as JSON.

Surprising: motifs are pairs and not a mapping, as an answer may give one molecule two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_INDICES = re.compile(r"<indices>([^<]*)</indices\s*>", re.IGNORECASE)
_INDEX_LIST = re.compile(r"[\s\[(]*([0-9]{1,6}(?:[\s,;]+[0-9]{1,6})*)[\s\]),;]*")
_MOTIF = re.compile(r"<motif_([0-9]{1,6})>([^<]*)(</motif_\1\s*>)?", re.IGNORECASE)
_JSON_INDICES = re.compile(r'"indices"\s*:\s*(\[[^\]]{0,2000}\])')
_JSON_MOTIF = re.compile(r'"(?:motif_)?([0-9]{1,6})"\s*:\s*"([^"\n]*)"')


@dataclass(frozen=True, slots=True)
class MotifSelection:
    """The indices as listed, and the motifs with theirs; each listed index has a motif."""

    indices: tuple[int, ...]
    motifs: tuple[tuple[int, str], ...]

    def failure(
        self, molecules: Sequence[str], min_atoms: int, counted: str, target: int
    ) -> str | None:
        """Why this is no answer to the question, or None if it is one.

        Every molecule must have one motif of at least `min_atoms` heavy atoms, and the motifs
        together must have `target` of the groups `counted`, each taken as a molecule of its own.
        """
        from rel_batch.chem.groups import count_groups
        from rel_batch.chem.molecules import canonical_forms
        from rel_batch.chem.substructures import is_in, num_heavy_atoms

        motifs = dict(self.motifs)
        if sorted(self.indices) != [*range(len(molecules))] or len(motifs) != len(molecules):
            return "wrong_indices"
        if len(self.motifs) != len(motifs):
            return "two_motifs"
        forms = canonical_forms(motifs.values())
        total = 0
        for index, motif in motifs.items():
            form = forms[motif]
            if form is None:
                return "unparsable_smiles"
            if "." in form:
                return "disconnected"
            if num_heavy_atoms(form) < min_atoms:
                return "too_small"
            found = is_in(form, molecules[index])
            if not found:
                return "undecided_substructure" if found is None else "not_a_substructure"
            total += count_groups(counted, form)
        return None if total == target else "wrong_total"


def read_selection(answer: str, *, cut: bool) -> MotifSelection | str:
    """The selection, or why there is none. `cut` says that the text was cut: then every tag must
    be closed."""
    if stated := list(_INDICES.finditer(answer)):
        listed = stated[-1][1]
        start = stated[-1].end() if _MOTIF.search(answer, stated[-1].end()) else 0
        motifs = [
            (int(tag[1]), tag[2].strip().partition("\n")[0].strip(" `\"'"))
            for tag in _MOTIF.finditer(answer, start)
            if tag[3] or not cut
        ]
    elif as_json := _JSON_INDICES.search(answer):
        listed = as_json[1]
        pairs = _JSON_MOTIF.findall(answer, as_json.end())
        motifs = [(int(index), motif.replace("\\\\", "\\")) for index, motif in pairs]
    else:
        return "no_answer"
    numbers = _INDEX_LIST.fullmatch(listed)
    if numbers is None:
        return "no_answer"
    indices = tuple(int(number) for number in re.findall("[0-9]+", numbers[1]))
    given = tuple(dict.fromkeys((index, motif) for index, motif in motifs if motif))
    if not {*indices} <= {index for index, _ in given}:
        return "missing_motif"
    return MotifSelection(indices, given)
