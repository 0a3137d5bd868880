"""Chat templates in the style of the common families, and a checkpoint that knows their tokens.

Made up: shortened from what the families publish, with the parts that decide how a thought begins
and ends kept as they are. `many_markers` is `tiny_chat` with every family's markers as single
tokens, and so loud that its samples open and close thoughts by themselves.
"""

from __future__ import annotations

from pathlib import Path

SPECIAL = (
    *("<|im_start|>", "<|im_end|>", "<|User|>", "<|Assistant|>"),
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"),
    *("<start_of_turn>", "<end_of_turn>"),
)
# Added, but not special: the families keep them in the decoded text.
ADDED = ("<think>", "</think>")

_TURN = "<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n"

QWEN3 = (
    "{% for m in messages %}" + _TURN + "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
DEEPSEEK_R1 = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'user' %}<|User|>{{ m.content }}"
    "{% else %}<|Assistant|>{{ m.content.split('</think>')[-1] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
)
GPT_OSS = (
    "{% for m in messages %}"
    "{% if m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>"
    "{% else %}{% if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>"
    "{{ m.thinking }}<|end|>{% endif %}"
    "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|return|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# A switch that only tells the model, in words, and leaves the ending as it is.
TOLD_BY_SYSTEM = (
    "<|im_start|>system\n{{ '/think' if enable_thinking else '/no_think' }}<|im_end|>\n"
    "{% for m in messages %}" + _TURN + "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ALWAYS_CLOSED = (
    "{% for m in messages %}" + _TURN + "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}"
)
# What a question says changes what the template does: nothing can be planned on that.
OBEYS_THE_QUESTION = (
    "{% for m in messages %}" + _TURN + "{% endfor %}"
    "<|im_start|>assistant\n{% if '/no_think' in messages[-1].content %}</think>{% endif %}"
)


def build_many_markers(folder: Path, tiny_chat: Path) -> None:
    """Write the checkpoint into an empty folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_chat)
    first_new = len(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    tokenizer.add_tokens(list(ADDED))
    model = AutoModelForCausalLM.from_pretrained(tiny_chat)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        rows = model.get_input_embeddings().weight[first_new:]
        rows.copy_(0.2 * torch.randn(rows.shape, generator=generator))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
