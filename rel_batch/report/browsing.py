"""The rows of a report, packed for its page: a small index, and texts in blocks.

    pack(findings.evidence).index     # gzip and base64 of columns
    pack(findings.evidence).blocks    # the same of texts, BLOCK instances each

The page unpacks the index at once and a block when somebody looks into it. Texts repeat much, so
100,000 rows take a few megabytes. Surprising: base64 has none of the characters that could end a
script element, so nothing that a model wrote reaches the HTML parser.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rel_batch.report.evidence import Evidence, Row
from rel_batch.report.reasons import REASONS

BLOCK = 200
# More rows than this make a page that no browser likes; then instances are left out evenly.
MOST_ROWS = 200_000

_VERDICTS = ("correct", "incorrect", "unparsed", "truncated", "error")


@dataclass(frozen=True)
class Packed:
    """What the page's script reads, and how many instances of all it holds."""

    index: str
    blocks: tuple[str, ...]
    shown: int
    total: int


def pack(evidence: Evidence, *, most_rows: int = MOST_ROWS) -> Packed:
    """The evidence for the page's browser."""
    groups = [(q, list(rows)) for q, rows in groupby(evidence.rows, key=lambda row: row.question)]
    total = len(groups)
    if len(evidence.rows) > most_rows:
        keep = max(1, total * most_rows // len(evidence.rows))
        groups = [groups[n * total // keep] for n in range(keep)]
    blocks = [groups[start : start + BLOCK] for start in range(0, len(groups), BLOCK)]
    return Packed(
        index=_packed(_index(evidence, groups)),
        blocks=tuple(_packed([_texts(evidence, q, rows) for q, rows in block]) for block in blocks),
        shown=len(groups),
        total=total,
    )


def verdict_of(row: Row) -> str:
    """What the page says of a row: its verdict, or why it has none that counts.

    A cut reply is "truncated" unless it was correct before the cut.
    """
    if not row.has_reply:
        return "error"
    if row.truncated and not row.correct:
        return "truncated"
    return row.verdict


def _index(evidence: Evidence, groups: Sequence[tuple[int, list[Row]]]) -> dict[str, Any]:
    questions = [evidence.questions[q] for q, _ in groups]
    tasks = sorted({question.task for question in questions})
    reasons = sorted({row.failure for _, rows in groups for row in rows if row.failure})
    place = {reason: n for n, reason in enumerate(reasons)}
    return {
        "block": BLOCK,
        "tasks": tasks,
        "arms": [arm.label for arm in evidence.arms],
        "verdicts": _VERDICTS,
        "failures": reasons,
        "meanings": [REASONS.get(reason, reason.replace("_", " ")) for reason in reasons],
        # One for each instance.
        "id": [question.id for question in questions],
        "task": [tasks.index(question.task) for question in questions],
        "subset": [question.subset for question in questions],
        "rc": [question.rc for question in questions],
        # One list for each instance, of [arm, sample, verdict, failure or -1].
        "rows": [
            [
                [
                    row.arm,
                    row.sample,
                    _VERDICTS.index(verdict_of(row)),
                    -1 if row.failure is None else place[row.failure],
                ]
                for row in rows
            ]
            for _, rows in groups
        ],
    }


def _texts(evidence: Evidence, q: int, rows: Sequence[Row]) -> list[Any]:
    return [*evidence.prompt_and_gold(q), [_row_texts(evidence, row) for row in rows]]


def _row_texts(evidence: Evidence, row: Row) -> list[Any]:
    texts = evidence.texts_of(row)
    tokens = row.generation.num_output_tokens if row.generation else 0
    return [texts.reply, texts.prediction, texts.thought, texts.error, tokens, row.status]


def _packed(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
