"""How many replies are complete, molecules, and as `formula` asks, for each rung, on the real vLLM.

    python benchmarks/molecule_rates.py CHECKPOINT SOURCE... [--limit 200]
        [--temperatures 0 2] [--kinds none syntax molecule formula] [--tasks REL-C2 REL-C3 REL-C4]

An arm for each kind and temperature, on the same instances and the same engine. Counted are
replies: *complete* ones that the constraint admits as a whole (without a constraint, those that the
model ended); of these the ones whose molecules RDKit parses, all of them; and of those the ones as
`formula` asks (REL-C3: each an isomer of the asked formula, and new; REL-C2 and C4: substructures,
large enough). With a random checkpoint a temperature of 2 is next to uniform over the mask. JSON on
standard output.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rdkit import Chem, rdBase

from rel_batch import constraint_for
from rel_batch.chem.molecules import canonical_form, formula
from rel_batch.chem.substructures import is_in, num_heavy_atoms
from rel_batch.records import Instance
from rel_batch.store import RunFolder

# C4 with 50 molecules takes some 1,500 bytes, at worst a token each.
MAX_TOKENS = {"REL-C2": 128, "REL-C3": 256, "REL-C4": 3072}
_TAG = re.compile(r"<(smiles|motif_([0-9]+))>([^<]*)</\1>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("source", nargs="+", type=Path)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0])
    parser.add_argument("--kinds", nargs="+", default=["none", "syntax", "molecule", "formula"])
    parser.add_argument("--tasks", nargs="+", default=list(MAX_TOKENS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in _measured(options, Path(folder)):
            print(json.dumps(line), flush=True)


def _measured(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    arms = [
        {
            "name": f"{kind}-{temperature:g}",
            "constraint": kind,
            "temperature": temperature,
            "max_tokens": {task: MAX_TOKENS[task] for task in options.tasks},
        }
        for kind in options.kinds
        for temperature in options.temperatures
    ]
    config = {
        "run": "rates",
        "model": {"path": str(options.checkpoint.resolve())},
        "instances": {
            "source": [str(source.resolve()) for source in options.source],
            "limit": options.limit,
            "tasks": options.tasks,
        },
        "arms": arms,
        "engine": {"cpu_kv_cache_gib": 2},
    }
    path = folder / "rates.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "rel_batch", "run", str(path)]
    done = subprocess.run(command, cwd=folder, check=False, stdout=sys.stderr)
    if done.returncode not in (0, 7):
        raise SystemExit(done.returncode)
    run = RunFolder.open(folder / "outputs" / "rates")
    for (arm, task), counts in sorted(_counted(run).items()):
        yield {"checkpoint": options.checkpoint.name, "arm": arm, "task": task, **counts}


def _counted(run: RunFolder) -> dict[tuple[str, str], Counter[str]]:
    instances = {instance.key: instance for instance in run.iter_instances()}
    counted: dict[tuple[str, str], Counter[str]] = {}
    for completion in run.iter_completions():
        counts = counted.setdefault((completion.arm, completion.task), Counter())
        instance = instances[completion.instance_key]
        counts["n"] += 1
        counts["tokens"] += completion.num_output_tokens
        counts[f"status {completion.status}"] += 1
        constraint = constraint_for(instance, completion.constraint_kind)  # type: ignore[arg-type]
        if completion.status != "ok" or not constraint.matches(completion.reply):
            continue
        counts["complete"] += 1
        found = [(match[2], match[3]) for match in _TAG.finditer(completion.reply)]
        if found and all(_parses(smiles) for _, smiles in found):
            counts["parse"] += 1
            counts["as formula asks"] += _is_as_asked(instance, found)
    return counted


def _parses(smiles: str) -> bool:
    """By RDKit itself: the package reads no SMILES of more than 1,000 characters."""
    with rdBase.BlockLogs():
        return Chem.MolFromSmiles(smiles) is not None


def _is_as_asked(instance: Instance, found: list[tuple[str | None, str]]) -> bool:
    molecules: list[str] = list(instance.answer["molecules"])
    if instance.task == "REL-C3":
        forms = [canonical_form(smiles) for smiles in (*molecules, *(s for _, s in found))]
        is_new = len(set(forms)) == len(forms)
        return is_new and len({formula(smiles) for smiles in (*molecules[:1], *forms)}) == 1
    least = int(instance.metadata.get("min_motif_atoms", 1))
    return all(
        bool(is_in(smiles, molecules[int(number or 0)])) and num_heavy_atoms(smiles) >= least
        for number, smiles in found
    )


if __name__ == "__main__":
    started = time.time()
    main()
    print(json.dumps({"wall_s": round(time.time() - started)}))
