"""Replies that a checkpoint samples under `molecule`, without vLLM: does each end well?

    python benchmarks/molecule_walks.py CHECKPOINT SOURCE [--limit 8] [--kind formula]

The question is the prompt. The forward pass is that of transformers; the masks are those of the
engine (`TokenReader`). At each step there must be a token in the mask, the reply must end within
its budget of tokens, and RDKit must parse each molecule. One line is printed: the replies, steps,
complete ones, molecules and those that RDKit refuses.
"""

# torch, transformers and RDKit are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rdkit import Chem, rdBase
from transformers import AutoModelForCausalLM, AutoTokenizer

from rel_batch import constraint_for, read_instances
from rel_batch.constraints.token_masks import MaskCache, TokenMasks, TokenReader
from rel_batch.constraints.vocabulary import token_bytes, token_trie

_TAG = re.compile(r"<smiles>([^<]*)</smiles>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--limit", type=int, default=8)
    parser.add_argument("--kind", default="molecule")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--max-tokens", type=int, default=96)
    options = parser.parse_args()
    tokenizer: Any = AutoTokenizer.from_pretrained(options.checkpoint)
    model: Any = AutoModelForCausalLM.from_pretrained(options.checkpoint).eval()
    tokens = token_bytes(tokenizer)
    width = model.config.vocab_size
    trie = token_trie(tokens, width)
    stop = frozenset((tokenizer.eos_token_id,))
    generator = torch.Generator().manual_seed(5)
    steps = complete = molecules = refused = 0
    instances = [
        instance
        for task in ("REL-C2", "REL-C3")
        for instance in read_instances(str(options.source), tasks=[task])[: options.limit]
    ]
    for instance in instances:
        constraint = constraint_for(instance, options.kind)
        reader = TokenReader(TokenMasks(constraint, tokens, trie, MaskCache()), stop)
        ids = torch.tensor([tokenizer(instance.question).input_ids])
        past, row, reply = None, np.zeros(-(-width // 32), dtype=np.int32), b""
        for step in range(options.max_tokens):
            with torch.no_grad():
                out = model(ids, past_key_values=past, use_cache=True)
            past = out.past_key_values
            reader.fill(row, options.max_tokens - step)
            mask = np.unpackbits(row.view(np.uint8), bitorder="little")[:width].astype(bool)
            assert mask.any(), reply
            logits = out.logits[0, -1].float() / max(options.temperature, 1e-6)
            logits[~torch.from_numpy(mask)] = -torch.inf
            token = int(torch.multinomial(logits.softmax(-1), 1, generator=generator))
            assert reader.accept(token)
            steps += 1
            if token in stop:
                break
            reply += tokens[token] or b""
            ids = torch.tensor([[token]])
        text = reply.decode()
        complete += constraint.matches(text)
        with rdBase.BlockLogs():
            parsed = [Chem.MolFromSmiles(smiles) for smiles in _TAG.findall(text)]
        molecules += len(parsed)
        refused += sum(one is None for one in parsed)
    print(
        f"{options.kind}: {len(instances)} replies, {steps} steps, {complete} complete, "
        f"{molecules} molecules, {refused} refused by RDKit"
    )


if __name__ == "__main__":
    main()
