"""An audit in numbers: what each file holds, and what was found in it.

The figures that the rows of one instance do not give: how many ids collide, and how many isomers
of how many formulas REL-C3's golds lack (an isomer that many golds lack counts once).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rel_batch.instances.audit.findings import AuditRow


@dataclass(frozen=True, slots=True)
class FileSummary:
    """One audited file: its records, those with a finding or an undecided check, and how many."""

    file: str
    records: int
    clean: int
    findings: Mapping[str, int]
    undecided: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """What an audit found.

    Attributes:
        colliding_ids: ids that several records of different content have.
        absent_isomers: the isomers that REL-C3's golds lack, by formula.
    """

    files: tuple[FileSummary, ...]
    colliding_ids: int
    absent_isomers: Mapping[str, frozenset[str]]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def findings(self) -> Counter[str]:
        return sum((Counter(file.findings) for file in self.files), Counter[str]())

    @property
    def undecided(self) -> Counter[str]:
        return sum((Counter(file.undecided) for file in self.files), Counter[str]())


def summarise_audit(rows: Iterable[AuditRow]) -> AuditSummary:
    """The summary of an audit's rows; files in the order of their rows."""
    by_file: dict[str, list[AuditRow]] = {}
    colliding: set[str] = set()
    absent: dict[str, set[str]] = {}
    for row in rows:
        by_file.setdefault(row.file, []).append(row)
        if "id_collision" in row.findings:
            colliding.add(row.id)
        if "incomplete" in row.findings:
            absent.setdefault(row.detail["formula"], set()).update(row.detail["absent"])
    return AuditSummary(
        files=tuple(_summarise_file(file, found) for file, found in by_file.items()),
        colliding_ids=len(colliding),
        absent_isomers={name: frozenset(found) for name, found in sorted(absent.items())},
    )


def _summarise_file(file: str, rows: list[AuditRow]) -> FileSummary:
    return FileSummary(
        file=file,
        records=len(rows),
        clean=sum(not row.findings and not row.undecided for row in rows),
        findings=Counter(name for row in rows for name in row.findings),
        undecided=Counter(name for row in rows for name in row.undecided),
    )
