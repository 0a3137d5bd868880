"""A set as large as the released one: 12,952 questions of its kinds and lengths.

    python benchmarks/full_set.py FOLDER [--released FILES ...]

What was released and is at hand is taken as it is (`--released`: files, folders); the rest is made
up: REL-B1 as alignments of 49 taxa and 300 columns, random throughout, so that no tokenizer meets a
sequence twice, and the other tasks as the bundled questions with a number before each. Gold means
nothing here. Deterministic.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rel_batch import instances

RELEASED = {
    **{f"REL-A{n}": 250 for n in (1, 2, 3, 4)},
    "REL-B1": 7_952,
    **{"REL-C1": 1_000, "REL-C2": 1_016, "REL-C3": 1_000, "REL-C4": 1_000},
}
NUM_TAXA, NUM_COLUMNS = 49, 300
BUNDLED = Path(instances.__file__).parent / "bundled"


def records_of(task: str, number: int) -> Iterator[dict[str, Any]]:
    """So many records of a task: the bundled ones, with a number before each question.

    REL-B1's are made up whole.
    """
    if task == "REL-B1":
        yield from (_alignment(n) for n in range(number))
        return
    known = _bundled(task)
    for n in range(number):
        record = known[n % len(known)]
        question = f"No. {n}.\n{record['question']}"
        yield {**record, "id": f"{record['id']}-{n}", "question": question}


@functools.cache
def _bundled(task: str) -> list[dict[str, Any]]:
    return [
        record
        for file in sorted(BUNDLED.glob(f"{task}*.jsonl"))
        for record in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    ]


def _alignment(number: int) -> dict[str, Any]:
    rng = random.Random(f"REL-B1/{number}")
    pattern = _bundled("REL-B1")[0]
    names = [str(n) for n in range(2, NUM_TAXA + 2)]
    rng.shuffle(names)
    fasta = "".join(f">{name}\n{''.join(rng.choices('ACGT', k=NUM_COLUMNS))}\n" for name in names)
    clades = list(names)
    while len(clades) > 1:
        a, b = (clades.pop(rng.randrange(len(clades))) for _ in range(2))
        clades.append(f"({a}:{rng.random():.4f},{b}:{rng.random():.4f})")
    question: str = pattern["question"]
    start, end = question.index(">"), question.rindex("Tree (Newick):")
    tail = question.index("Return your answer")
    question = f"{question[:start]}{fasta}\n        {question[end : end + 14]}\n        "
    question += f"{clades[0]};\n\n        {pattern['question'][tail:]}"
    taxa = rng.sample(names, rng.randint(2, 25))
    return {
        "id": f"made-{number}",
        "domain": "biology",
        "task": "REL-B1",
        "question": question,
        "answer": {"label": "yes", "taxa": taxa},
        "metadata": {},
    }


def write_full_set(folder: Path, released: Sequence[Path] = ()) -> Path:
    """Write the set, one file a task, and give the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [f for path in released for f in (path.rglob("*.jsonl") if path.is_dir() else (path,))]
    for task, number in RELEASED.items():
        given = [
            (file.stem, line)
            for file in sorted(files)
            for line in file.read_text(encoding="utf-8").splitlines()
            if json.loads(line)["task"] == task
        ][:number]
        for stem in dict.fromkeys(stem for stem, _ in given):
            lines = [line for of, line in given if of == stem]
            (folder / f"{stem}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        with (folder / f"{task}_made.jsonl").open("w", encoding="utf-8") as made:
            for record in records_of(task, number - len(given)):
                made.write(json.dumps(record) + "\n")
    for file in folder.glob("*_made.jsonl"):
        if not file.stat().st_size:
            file.unlink()
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--released", nargs="*", type=Path, default=[])
    asked = parser.parse_args()
    write_full_set(asked.folder, asked.released)


if __name__ == "__main__":
    main()
