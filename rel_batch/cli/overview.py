"""What `tasks` and `check` print."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rel_batch.instances import read_instances
from rel_batch.launch.prepare import Prepared
from rel_batch.tasks import TASKS, task_for


def print_tasks() -> None:
    """One line a task."""
    table = Table(box=None, pad_edge=False)
    for heading in ("task", "question", "headline", "constraints"):
        table.add_column(heading, overflow="fold")
    for task in TASKS.values():
        table.add_row(
            task.name, task.title, task.headline.replace("_", " "), " ".join(task.constraint_kinds)
        )
    Console().print(table)


def print_task(name: str, *, only_constraints: bool) -> None:
    """Prompt, constraints and reference reply of the task's first bundled instance."""
    task = task_for(name)
    instance = next(i for i in read_instances("bundled") if i.task == task.name)
    console = Console()

    def section(heading: str, text: str) -> None:
        console.print(Text(heading, style="bold"))
        console.print(Text(text), soft_wrap=True)
        console.print()

    section(f"{task.name}  {task.title}", f"bundled instance {instance.id}, RC {instance.rc}")
    if not only_constraints:
        section("prompt", instance.question)
    for kind in task.constraint_kinds:
        section(f"constraint {kind}", task.constraint(instance, kind).text_form())
    if not only_constraints:
        section("reference reply", task.reference_reply(instance))


def print_check(prepared: Prepared, rejected: Mapping[str, str]) -> None:
    """Counts and token lengths by task, subset and arm, and what will not run."""
    console = Console()
    groups: dict[tuple[str, str, str], list[int]] = {}
    replies: dict[tuple[str, str, str], int] = {}
    digests: dict[tuple[str, str, str], set[str]] = {}
    too_long = 0
    for request in prepared.plan.requests:
        subset = prepared.instances[request.instance_key].subset
        group = (request.task, subset, request.arm)
        groups.setdefault(group, []).append(request.num_prompt_tokens)
        replies[group] = max(replies.get(group, 0), request.max_tokens)
        digests.setdefault(group, set()).add(request.constraint_digest)
        too_long += not prepared.fits(request)
    table = Table(box=None, pad_edge=False)
    for heading in ("task", "subset", "arm"):
        table.add_column(heading)
    for heading in ("requests", "constraints", "median prompt", "longest prompt", "max_tokens"):
        table.add_column(heading, justify="right")
    for group, lengths in sorted(groups.items()):
        table.add_row(
            *group,
            f"{len(lengths):,}",
            f"{len(digests[group]):,}",
            f"{statistics.median(lengths):,.0f}",
            f"{max(lengths):,}",
            f"{replies[group]:,}",
        )
    console.print(table)
    checkpoint = prepared.checkpoint
    template = "chat template" if prepared.renderer.uses_chat_template else "plain text"
    facts = [
        f"{len(prepared.instances):,} instances, {len(prepared.plan.requests):,} requests, "
        f"{prepared.plan.num_prompt_tokens:,} prompt tokens, max_model_len "
        f"{prepared.max_model_len:,}",
        f"model {checkpoint.name} at {checkpoint.commit}, {template}"
        if checkpoint
        else "fake engine: no model, one token per byte",
    ]
    facts += prepared.plan.remarks
    if prepared.skipped:
        facts.append(f"{len(prepared.skipped)} bad lines left out:")
        facts += [f"  {complaint}" for complaint in prepared.skipped]
    if too_long:
        facts.append(f"{too_long} requests do not fit and will be too_long rows")
    for reason in list(rejected.values())[:5]:
        facts.append(f"constraint rejected: {reason}")
    for fact in facts:
        console.print(Text(fact), soft_wrap=True)
