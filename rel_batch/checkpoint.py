"""Which checkpoint, exactly: a folder or a Hub id resolved to a path and a commit.

    resolve_checkpoint(ModelConfig(path="google/gemma-3-270m-it", revision="main"))
    -> Checkpoint(path=".../snapshots/<commit>", commit="<commit>", ...)

The commit is part of a run's identity. A folder inside the Hub's cache carries its commit in its
path; for any other folder the "commit" is `local-` and a digest of its small files in full and
of each weight file's size and first MiB, which holds the header with every tensor's name, type
and shape. Surprising: two folders whose weights differ only past that point look the same.
"""

# huggingface_hub is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rel_batch.config import ModelConfig
from rel_batch.errors import ConfigError, EngineError

_WEIGHT_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})
_HEAD_BYTES = 1 << 20
_COMMIT = re.compile(r"^[0-9a-f]{40}$")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on this machine.

    Attributes:
        name: what the user called it.
        path: the folder with config.json, tokenizer and weights.
        commit: Hub commit, or `local-` and a digest.
        max_position_embeddings: the longest context the model was made for; None if not said.
    """

    name: str
    path: Path
    commit: str
    max_position_embeddings: int | None


def resolve_checkpoint(model: ModelConfig) -> Checkpoint:
    """Find the checkpoint, downloading it where it is a Hub id that is not cached yet.

    Raises EngineError if it cannot be found or read.
    """
    folder = Path(model.path).expanduser()
    if folder.exists():
        if model.revision is not None:
            raise ConfigError(
                f"model.revision is {model.revision!r}, but {model.path} is a local folder",
                hint="leave model.revision out",
            )
        if not folder.is_dir():
            raise EngineError(f"{model.path} is a file; expected a checkpoint folder")
        path = folder.resolve()
        commit = path.name if path.parent.name == "snapshots" and _COMMIT.match(path.name) else None
    else:
        path = _download(model)
        commit = path.name
    config = _read_model_config(path)
    return Checkpoint(
        name=model.path,
        path=path,
        commit=commit or "local-" + _folder_digest(path),
        max_position_embeddings=_max_position_embeddings(config),
    )


def _download(model: ModelConfig) -> Path:
    if model.path.startswith((".", "/", "~")) or model.path.count("/") != 1:
        raise EngineError(
            f"no checkpoint at {model.path}: there is no such folder",
            hint="model.path is a folder, or a Hub id like google/gemma-3-270m-it",
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        found = snapshot_download(
            model.path,
            revision=model.revision,
            # Weights come in one format; the others would double the download.
            ignore_patterns=["*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*", "*.pth"],
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, ValueError, OSError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise EngineError(
            f"cannot get {model.path} (revision {model.revision or 'main'}): {first_line}",
            hint="no such folder here; if it is a Hub id, check its name, your token and network",
        ) from error
    return Path(found)


def _read_model_config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(
            f"{path} is not a readable checkpoint: config.json: {error}",
            hint="expected a Hugging Face checkpoint folder with config.json, tokenizer, weights",
        ) from error
    if not isinstance(config, dict):
        raise EngineError(f"{file}: expected a JSON object")
    return config  # pyright: ignore[reportUnknownVariableType]


def _max_position_embeddings(config: dict[str, Any]) -> int | None:
    # Multimodal checkpoints keep the language model's settings one level down.
    for section in (config, config.get("text_config"), config.get("llm_config")):
        if isinstance(section, dict):
            value: Any = section.get("max_position_embeddings")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            if isinstance(value, int) and value > 0:
                return value
    return None


def _folder_digest(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(entry for entry in path.iterdir() if entry.is_file()):
        size = file.stat().st_size
        with file.open("rb") as stream:
            weights = file.suffix in _WEIGHT_SUFFIXES
            content = stream.read(_HEAD_BYTES) if weights else stream.read()
        digest.update(f"{file.name}\0{size}\0".encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()[:40]
