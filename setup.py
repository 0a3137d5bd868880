"""Compiles the molecule automaton while the package is built.

Everything else is in `pyproject.toml`. The extension is optional: without a C compiler the
package installs all the same and runs the same functions in plain Python.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
NAME = "rel_batch.constraints.molecules._native"


class BuildNative(build_ext):
    """Writes the C source from the Python functions before it is compiled."""

    def build_extension(self, ext: Extension) -> None:
        sys.path.insert(0, str(ROOT))
        from rel_batch.constraints.molecules.translate import render_c

        source = Path(self.build_temp) / "native.c"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(render_c(), encoding="utf-8")
        ext.sources = [str(source)]
        super().build_extension(ext)

    def get_export_symbols(self, ext: Extension) -> list[str]:  # noqa: ARG002
        return []  # loaded with ctypes, so there is no PyInit function to export


setup(
    ext_modules=[Extension(NAME, sources=[], extra_compile_args=["-O3", "-fwrapv"], optional=True)],
    cmdclass={"build_ext": BuildNative},
)
