"""What each constraint costs: milliseconds to compile, microseconds to mask a step.

    python benchmarks/constraint_masks.py .cache/checkpoints/gemma3-270m [--tasks REL-C2] [--csv]

For every task and kind, each matcher that can decode it (xgrammar, guidance, our own machine) is
compiled for the checkpoint's tokenizer and led along reference replies of the bundled instances.
`cold` masks are those of a first reply; `warm` are those of the same reply again, which matters
for matchers that remember. The times are medians and 99th percentiles over all steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rel_batch import constraint_for, read_instances
from rel_batch.constraints import Constraint
from rel_batch.constraints.dialects import is_grammar
from rel_batch.constraints.token_masks import MaskCache, TokenMasks, TokenReader
from rel_batch.constraints.vocabulary import token_bytes, token_trie
from rel_batch.tasks import TASKS, task_for

# A mask function and a function that takes a token.
Steps = tuple[Callable[[], object], Callable[[int], bool]]


class Matchers:
    """The three matchers over one tokenizer."""

    def __init__(self, path: str) -> None:
        import xgrammar
        from llguidance.hf import from_tokenizer
        from transformers import AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self.size = len(self.tokenizer)
        info = xgrammar.TokenizerInfo.from_huggingface(self.tokenizer, vocab_size=self.size)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.llg: Any = from_tokenizer(self.tokenizer, self.size)
        started = time.perf_counter()
        self.tokens = token_bytes(self.tokenizer)
        self.trie = token_trie(self.tokens, self.size)
        print(f"{self.size} tokens; trie of {len(self.trie.byte)} nodes in "
              f"{time.perf_counter() - started:.1f} s")  # fmt: skip
        self.cache = MaskCache()
        self.bitmask = xgrammar.allocate_token_bitmask(1, self.size)

    def compiled(self, matcher: str, constraint: Constraint) -> Callable[[], Steps]:
        """Compiles, and returns what starts a reply."""
        from rel_batch.engine.structured_outputs import grammar_of

        if matcher == "machine":
            masks = TokenMasks(constraint, self.tokens, self.trie, self.cache)
            row = self.bitmask[0].numpy()
            stop = frozenset({self.tokenizer.eos_token_id})

            def start() -> Steps:
                reader = TokenReader(masks, stop)
                return lambda: reader.fill(row, 100_000), reader.accept

            return start
        grammar = grammar_of(constraint, "guidance" if matcher == "guidance" else "xgrammar")
        if matcher == "guidance":
            return self._guidance(grammar)
        return self._xgrammar(grammar)

    def _guidance(self, grammar: Any) -> Callable[[], Steps]:
        import llguidance
        import llguidance.torch

        text = grammar.text
        if grammar.type == "JSON":
            text = llguidance.LLMatcher.grammar_from_json_schema(
                text, defaults={"whitespace_flexible": False}
            )
        elif grammar.type == "REGEX":
            text = llguidance.LLMatcher.grammar_from_regex(text)

        def start() -> Steps:
            matcher = llguidance.LLMatcher(self.llg, text, log_level=0)
            assert not matcher.get_error(), matcher.get_error()
            fill = llguidance.torch.fill_next_token_bitmask
            return lambda: fill(matcher, self.bitmask, 0), matcher.consume_token

        start()
        return start

    def _xgrammar(self, grammar: Any) -> Callable[[], Steps]:
        import xgrammar

        if grammar.type == "JSON":
            compiled = self.compiler.compile_json_schema(
                grammar.text, any_whitespace=False, separators=(",", ":")
            )
        elif grammar.type == "REGEX":
            compiled = self.compiler.compile_regex(grammar.text)
        else:
            compiled = self.compiler.compile_grammar(grammar.text)

        def start() -> Steps:
            matcher = xgrammar.GrammarMatcher(compiled)
            return lambda: matcher.fill_next_token_bitmask(self.bitmask, 0), matcher.accept_token

        return start


def measured(matchers: Matchers, matcher: str, task: str, kind: Any, num: int) -> str:
    instances = [i for i in read_instances("bundled") if i.task == task][:num]
    compile_s: list[float] = []
    cold: list[float] = []
    warm: list[float] = []
    for instance in instances:
        constraint = constraint_for(instance, kind)
        started = time.perf_counter()
        start = matchers.compiled(matcher, constraint)
        compile_s.append(time.perf_counter() - started)
        reply = task_for(task).reference_reply_for(instance, kind)
        ids = matchers.tokenizer.encode(reply, add_special_tokens=False)
        for times in (cold, warm):
            fill, accept = start()
            for token_id in ids:
                began = time.perf_counter()
                fill()
                times.append(time.perf_counter() - began)
                assert accept(token_id), (task, kind, matcher, reply)
    columns = [f"{np.median(compile_s) * 1e3:9.1f}"]
    columns += [
        f"{np.quantile(times, q) * 1e6:9.0f}" for times in (cold, warm) for q in (0.5, 0.99)
    ]
    return f"{task:8}{kind:16}{matcher:10}" + "".join(columns) + f"{len(cold):8}"


def rows(matchers: Matchers, tasks: list[str], num: int) -> Iterator[str]:
    for task in tasks:
        instance = next(i for i in read_instances("bundled") if i.task == task)
        for kind in task_for(task).constraint_kinds[1:]:
            if kind == "formula":
                continue
            grammar = is_grammar(constraint_for(instance, kind))
            for matcher in ("xgrammar", "guidance", "machine") if grammar else ("machine",):
                # Our machine has no use for a run of any characters: a walk of the whole trie.
                if matcher == "machine" and kind in ("format", "regex", "json") and task > "REL-C1":
                    continue
                yield measured(matchers, matcher, task, kind, num)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("--tasks", nargs="*", default=["REL-A1", *sorted(TASKS)[4:]])
    parser.add_argument("--instances", type=int, default=3)
    options = parser.parse_args()
    matchers = Matchers(options.checkpoint)
    print(f"{'task':8}{'kind':16}{'matcher':10}{'compile':>9}{'cold':>9}{'p99':>9}{'warm':>9}"
          f"{'p99':>9}{'steps':>8}   (ms, then us)")  # fmt: skip
    for line in rows(matchers, options.tasks, options.instances):
        print(line, flush=True)


if __name__ == "__main__":
    main()
