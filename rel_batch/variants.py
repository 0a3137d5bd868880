"""What an arm asks of the model: the paper's words, and what the arm puts around them.

    variants = Variants(instances)
    variants.asked(instance, arm)    # Asked(question="Complete the Raven's ...", system="", ...)

A variant is a system prompt, an instruction to reply in JSON, k worked examples, an instruction to
think, or several of these. Law: the paper's prompt stands in every one of them, word for word.

Worked examples are other instances of the same task (of the same subset where it has enough) with
their reference replies in the arm's own format. They are drawn for each instance by the arm's
`examples_seed` and the instance's key, so that they depend on nothing else that a run does.
Surprising: "another instance" is not enough. Two alignments of one tree, two lists of isomers of
one formula, or two lists with the same common motif give each other's gold away, so an example has
no molecule, formula, gold molecule or sequence in common with what is asked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from rel_batch.config import ArmConfig
from rel_batch.errors import ConfigError
from rel_batch.prompts import PROMPTED_INSTRUCTION
from rel_batch.records import Instance
from rel_batch.tasks import task_for

_SEQUENCE = re.compile(r"\b[ACGTU-]{16,}\b", re.IGNORECASE)
_MOLECULES = ("molecules", "smiles", "missing_smiles")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the model is asked.

    Attributes:
        question: the user's message.
        system: the system prompt; "" for none.
        think: whether the chat template is asked for a thought.
    """

    question: str
    system: str = ""
    think: bool = False


class Variants:
    """The variants of the prompts of a run's instances; all of them, as examples are among them."""

    def __init__(self, instances: Iterable[Instance]) -> None:
        self._pools: dict[str, dict[str, list[Instance]]] = {}
        # Sorted, so that the order of the files is no part of what is drawn.
        for instance in sorted(instances, key=lambda instance: instance.key):
            subsets = self._pools.setdefault(instance.task, {})
            subsets.setdefault(instance.subset, []).append(instance)
        self._material: dict[str, frozenset[int]] = {}

    def asked(self, instance: Instance, arm: ArmConfig) -> Asked:
        """What `arm` asks about `instance`.

        Raises ConfigError where there are too few other instances for the arm's worked examples.
        """
        added = _instruction(instance, arm)
        question = instance.question + added
        if arm.thinking == "prompted":
            question += PROMPTED_INSTRUCTION
        if arm.examples:
            examples = self.examples(instance, arm)
            shown = [
                f"Example {number}:\n\n{example.question}{added}\n\n"
                f"Reply:\n{_reply(example, arm)}\n\n\n"
                for number, example in enumerate(examples, start=1)
            ]
            # A thought comes before the reply.
            cue = "\n\nReply:\n" if arm.thinking == "none" else ""
            question = f"{''.join(shown)}Question:\n\n{question}{cue}"
        return Asked(question, arm.system_prompt or "", arm.thinking == "native")

    def examples(self, instance: Instance, arm: ArmConfig) -> tuple[Instance, ...]:
        """The worked examples that `arm` shows with `instance`. Raises ConfigError."""
        rng = Random(f"{arm.examples_seed}/{instance.key}")
        subsets = self._pools.get(instance.task, {})
        same = subsets.get(instance.subset, [])
        others = [i for name, some in subsets.items() if name != instance.subset for i in some]
        drawn: list[Instance] = []
        for pool in (same, others):
            for candidate in _in_random_order(pool, rng):
                if len(drawn) == arm.examples:
                    return tuple(drawn)
                if not self._material_of(candidate) & self._material_of(instance):
                    drawn.append(candidate)
        if len(drawn) < arm.examples:
            raise ConfigError(
                f"arm {arm.name!r}: examples: {arm.examples}, but only {len(drawn)} other instances"
                f" of {instance.task} give nothing away of {instance.id} ({instance.subset})",
                hint="ask for fewer worked examples, or give the run more instances "
                "(instances.limit, instances.source)",
            )
        return tuple(drawn)

    def _material_of(self, instance: Instance) -> frozenset[int]:
        if instance.key not in self._material:
            # As numbers: the sequences of 8,000 alignments are 400 MB.
            self._material[instance.key] = frozenset(map(_number, _material(instance)))
        return self._material[instance.key]


def _instruction(instance: Instance, arm: ArmConfig) -> str:
    """What tells the model to reply in JSON; "" for the paper's words alone."""
    kind = arm.constraint
    if arm.json_instruction != "auto":
        kind = arm.json_kind if arm.json_instruction else "none"
    return task_for(instance.task).instruction(kind)


def _reply(example: Instance, arm: ArmConfig) -> str:
    """The reference reply as the arm wants replies."""
    kind = arm.json_kind if arm.json_instruction is True else arm.constraint
    return task_for(example.task).reference_reply_for(example, kind)


def _material(instance: Instance) -> Iterator[str]:
    """What another instance must not share, or it would give something of the answer away."""
    yield instance.question
    yield from _SEQUENCE.findall(instance.question)
    for name in _MOLECULES:
        value: Any = instance.answer.get(name, ())
        yield from (value,) if isinstance(value, str) else value
    formula = _common_formula(instance.answer.get("molecules", ()))
    if formula is not None:
        yield f"formula {formula}"


def _common_formula(molecules: Sequence[str]) -> str | None:
    """The formula of all molecules of a list, None where they differ in it."""
    if not molecules:
        return None
    from rel_batch.chem.molecules import formula

    first = formula(molecules[0])
    return first if all(formula(other) == first for other in molecules[1:]) else None


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _in_random_order(pool: Sequence[Instance], rng: Random) -> Iterator[Instance]:
    """Every instance once, drawn one by one: few draws are needed of a large pool."""
    moved: dict[int, int] = {}
    for last in range(len(pool) - 1, -1, -1):
        at = rng.randrange(last + 1)
        yield pool[moved.get(at, at)]
        moved[at] = moved.get(last, last)
