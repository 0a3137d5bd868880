"""What runs inside every process of vLLM: the entry point of `vllm.general_plugins`.

vLLM calls `register` in the process that starts an engine, in the engine core and in each of its
workers, maybe more than once. Surprising: it is also called for engines that are none of ours,
wherever rel-batch is installed beside vLLM, and must then change nothing.
"""

from __future__ import annotations

from rel_batch.engine.process import die_with_parent


def register() -> None:
    """Tie this process to the one that started it, where that is a rel-batch process, and let
    the engine read rel-batch's own grammars, which no other program writes."""
    die_with_parent()

    from rel_batch.engine.grammar_backend import install

    install()
