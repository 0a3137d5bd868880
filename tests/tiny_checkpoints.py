"""Tiny random checkpoints, so that tests run the real engine in seconds.

`tiny_llama` is a base model (no chat template, its tokenizer puts `<s>` first), `tiny_chat` the
same weights with a chat template. Both know nothing: a 2-layer Llama of 0.46 M random parameters
and a byte-level BPE of 1,024 tokens, a context of 16,384. They are a function of this file alone
(fixed seed, training text written below), so two machines build the same ones.

    python tests/tiny_checkpoints.py FOLDER     # builds FOLDER/tiny_llama and FOLDER/tiny_chat
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from rel_batch.demo import build_once

NAMES = ("tiny_llama", "tiny_chat")
VOCABULARY = 1024
CONTEXT = 16384
SEED = 20260413

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "[{{ message['role'] }}]\n{{ message['content'] }}{{ eos_token }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}[assistant]\n{% endif %}"
)

_PROSE = """Complete the progressive matrix. Only return the missing panel index!
Homoplasy refers to structured convergence: pairs or groups of distantly related taxa that
repeatedly share the same nucleotide motifs across many independent alignment columns. Given the
phylogenetic tree and the multiple sequence alignment, answer Yes or No and if Yes, list the taxa
involved. Nothing else. Are all of these molecules constitutional isomers of each other? Find the
largest common connected motif (substructure) in all molecules. Complete the set by identifying the
missing constitutional isomers. Output exactly <Yes> or <No>. Given SMILES: <smiles> </smiles>
<indices> </indices> <motif_0> </motif_0> row 1: Answer set: Answer 0: carboxylic acid, alcohol,
primary amine, ketone, aromatic rings, total count of the selected functional groups."""
_FRAGMENTS = """C CC CCC C=C C#C C(=O)O C(=O)N c1ccccc1 c1ccncc1 OC( NC( CO CN CCl CBr F S(=O)(=O)
[nH] [N+] [O-] C1CC1 C1CCCC1 C1CCCCC1 (C)(C) =O )( 1 2 3"""


def _training_text() -> Iterator[str]:
    """Lines that look like REL's prompts: prose, number tuples, alignments and SMILES."""
    rng = random.Random(SEED)
    fragments = _FRAGMENTS.split()
    for _ in range(400):
        yield _PROSE
        yield ", ".join(str(tuple(rng.randrange(1000) for _ in range(3))) for _ in range(9))
        yield f">{rng.randrange(50)}\n" + "".join(rng.choice("ACGT") for _ in range(80))
        yield "".join(rng.choice(fragments) for _ in range(8))


def build(folder: Path, *, chat: bool) -> None:
    """Write one checkpoint into an empty folder."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_training_text(), trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bpe.token_to_id("<s>"))]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        model_max_length=CONTEXT,
    )
    if chat:
        tokenizer.chat_template = CHAT_TEMPLATE

    torch.manual_seed(SEED)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def tiny_checkpoint(name: str, cache: Path) -> Path:
    """The folder of the checkpoint `name`, built on first use."""
    return build_once(cache / name, lambda folder: build(folder, chat=name == "tiny_chat"))


if __name__ == "__main__":
    for each in NAMES:
        print(tiny_checkpoint(each, Path(sys.argv[1])))
