"""REL-B1: is there homoplasy in an alignment, and between which taxa?

The reply is `No`, or `Yes: 18, 28` with the names of the taxa; it is right where the label is and
the names are exactly gold's set. RC is the number of homoplastic taxa, 0 for a No instance.

Surprising: the names are whatever stands after ">" in the alignment of the question, so they may
look like anything; the tree may be absent, and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

from rel_batch.constraints import Constraint, Kind, OneOf, Seq, Text, separated, texts
from rel_batch.overlap import Overlap, set_overlap
from rel_batch.records import Instance, Score
from rel_batch.tasks.task import Complexity, FieldError, RawRecord, Task
from rel_batch.tasks.taxa import TaxaReading, read_taxa

# Starts with a plain character, which is found much faster than a start of line.
_HEADER = re.compile(r"\n[ \t]*>([^\n]*)")
_NO_OVERLAP = Overlap(0.0, 0.0, 0.0)


def taxa_names(question: str) -> list[str]:
    """The names of the sequences in the FASTA of a question, in its order.

    Raises FieldError where there are fewer than two, one is empty or repeated, or a list of them
    could be read in two ways.
    """
    names = [name.strip() for name in _HEADER.findall("\n" + question)]
    if len(names) < 2:
        raise FieldError("question", f"expected a FASTA alignment, found {len(names)} sequences")
    known = set(names)
    if len(known) != len(names) or "" in known:
        twice = next(name for name in names if not name or names.count(name) > 1)
        raise FieldError("question", f"a sequence has an empty or repeated name: {twice!r:.80}")
    lengths = sorted({len(name) for name in names})
    for name in names:
        if "<think>" in name or "</think>" in name:
            raise FieldError("question", f"a name looks like a thought: {name!r:.80}")
        for length in lengths if ", " in name else ():
            if name[:length] in known and name.startswith(", ", length):
                raise FieldError(
                    "question",
                    f"the name {name!r:.80} starts with the name {name[:length]!r:.80} and a comma,"
                    " so that a list of taxa has two readings",
                )
    return names


@dataclass(frozen=True)
class HomoplasyTask(Task):
    """Failures: unparsed `no_label`, `truncated`; incorrect `wrong_label`, `missing_taxa`,
    `extra_taxa`, `wrong_taxa` (missing and extra), `unknown_taxa` (a name that is not in the
    alignment), `truncated` (the list may have been cut)."""

    name: str = "REL-B1"
    title: str = "homoplasy in an alignment"
    max_tokens: int = 256

    domain: ClassVar[str] = "biology"
    headline: ClassVar[Literal["accuracy", "exact_match"]] = "exact_match"
    has_set_metrics: ClassVar[bool] = True

    def describe(self, record: RawRecord) -> Complexity:
        label, taxa = record.answer.get("label"), record.answer.get("taxa")
        if label not in ("yes", "no"):
            raise FieldError("answer.label", f'expected "yes" or "no", found {label!r:.80}')
        if not isinstance(taxa, list | tuple):
            raise FieldError("answer.taxa", f"expected an array of names, found {taxa!r:.80}")
        names = taxa_names(record.question)
        gold = list(cast(Sequence[object], taxa))
        for taxon in gold:
            if taxon not in names:
                raise FieldError("answer.taxa", f"{taxon!r:.80} is no name of the alignment")
        if len(set(gold)) != len(gold):
            raise FieldError("answer.taxa", "a taxon is repeated")
        if bool(gold) != (label == "yes"):
            raise FieldError(
                "answer.taxa", f"the label is {label!r} but there are {len(gold)} taxa"
            )
        return Complexity(rc=len(gold), num_entities=len(names))

    def constraint(self, instance: Instance, kind: Kind) -> Constraint:
        if kind == "none":
            return Constraint("none")
        if kind == "format":
            names = taxa_names(instance.question)
            listed = separated(texts(tuple(names)), ", ", 1, len(names))
            return Constraint("format", OneOf((Text("No"), Seq((Text("Yes: "), listed)))))
        raise ValueError(f"{self.name} has no constraint {kind!r}")

    def reference_reply(self, instance: Instance) -> str:
        if instance.answer["label"] == "no":
            return "No"
        return "Yes: " + ", ".join(instance.answer["taxa"])

    def score(self, instance: Instance, answer: str, *, truncated: bool) -> Score:
        gold = frozenset[str](instance.answer["taxa"])
        read = read_taxa(answer, frozenset(taxa_names(instance.question)))
        if read.label is None or (truncated and not read.label_over):
            overlap = _NO_OVERLAP if gold else None
            return _score(None, "truncated" if truncated else "no_label", overlap)
        listed = read.taxa | read.unknown
        is_cut = truncated and read.label == "yes" and not read.list_over
        if is_cut and read.touching is not None:
            listed -= {read.touching}
        says_yes = read.label == "yes"
        overlap = set_overlap(listed if says_yes else frozenset[str](), gold) if gold else None
        prediction = {"label": read.label, "taxa": sorted(listed)}
        return _score(prediction, _failure(read, listed, gold, is_cut=is_cut), overlap)

    def score_upstream(self, instance: Instance, reply: str) -> Score:
        """Their label is "yes" or "no" where exactly one of them occurs anywhere in the reply, in
        other words too; their taxa are all runs of digits. No is right where there are none of
        these, Yes where any is in gold."""
        lowered = reply.lower()
        says_yes, says_no = "yes" in lowered, "no" in lowered
        label = None if says_yes == says_no else ("yes" if says_yes else "no")
        taxa = {number.lstrip("0") or "0" for number in re.findall("[0-9]+", reply)}
        gold = frozenset[str](instance.answer["taxa"])
        prediction = {"label": label, "taxa": sorted(taxa)}
        right = bool(taxa & gold) if gold else not taxa
        failure = (
            None
            if label == instance.answer["label"] and right
            else ("wrong_taxa" if label == instance.answer["label"] else "wrong_label")
        )
        return _score(prediction, failure, set_overlap(taxa, gold) if gold else None)


def _failure(
    read: TaxaReading, listed: frozenset[str], gold: frozenset[str], *, is_cut: bool
) -> str | None:
    if (read.label == "yes") != bool(gold):
        return "wrong_label"
    if is_cut:
        return "truncated"
    if listed == gold:
        return None
    if read.unknown:
        return "unknown_taxa"
    if listed < gold:
        return "missing_taxa"
    return "extra_taxa" if listed > gold else "wrong_taxa"


def _score(prediction: object, failure: str | None, overlap: Sequence[float] | None) -> Score:
    verdict: Literal["correct", "incorrect", "unparsed"] = "incorrect" if failure else "correct"
    if prediction is None:
        verdict = "unparsed"
    precision, recall, f1 = overlap or (None, None, None)
    return Score(verdict, prediction, failure, precision, recall, f1)


HOMOPLASY_TASK = HomoplasyTask()
