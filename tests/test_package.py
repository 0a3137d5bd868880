"""What a user installs: the wheel holds everything, and the command starts at once."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import rel_batch
from rel_batch.demo import build_once

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that the build leaves nothing in the repository."""
    pytest.importorskip("setuptools", minversion="77", reason="the dev extra is not installed")
    source = tmp_path_factory.mktemp("source")
    leave_out = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc")
    shutil.copytree(ROOT / "rel_batch", source / "rel_batch", ignore=leave_out)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--quiet", "--wheel-dir", out, source], check=True)
    [built] = out.glob("*.whl")
    return built


def test_a_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    package = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "rel_batch").rglob("*")
        if file.is_file() and file.suffix not in {".pyc", ".so"}
    }
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert package - packed == set()


def test_a_wheel_has_the_command_the_version_and_the_licence(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    about = f"rel_batch-{rel_batch.__version__}.dist-info"
    assert "rel-batch = rel_batch.cli:main" in archive.read(f"{about}/entry_points.txt").decode()
    assert f"\nVersion: {rel_batch.__version__}\n" in archive.read(f"{about}/METADATA").decode()
    assert f"{about}/licenses/LICENSE" in archive.namelist()


def test_what_the_package_imports_is_declared() -> None:
    """Beyond the base dependencies there is only what an engine brings along."""
    from_an_engine = {"llguidance", "torch", "transformers", "vllm", "xgrammar"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {_canonical(re.split(r"[^\w-]", line)[0]) for line in project["dependencies"]}
    homes = metadata.packages_distributions()
    undeclared = {
        name
        for name in _imported() - from_an_engine
        if not declared & {_canonical(home) for home in homes.get(name, [name])}
    }
    assert undeclared == set()


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-")


def _imported() -> set[str]:
    """The top-level names that the package imports, without the standard library's."""
    names: set[str] = set()
    for file in (ROOT / "rel_batch").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"rel_batch"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["score", "--help"], ["report", "--help"]]
)
def test_help_imports_no_engine_and_nothing_slow(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        f"sys.argv = ['rel-batch', *{arguments!r}]\n"
        "from rel_batch.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "slow = {'vllm', 'torch', 'transformers', 'rdkit', 'pyarrow', 'numpy'}\n"
        "print('imported:', sorted(slow & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.splitlines()[-1] == "imported: []"


def test_an_interrupted_build_leaves_no_checkpoint(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once(tmp_path / "checkpoint", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_built_once(tmp_path: Path) -> None:
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        (folder / "config.json").write_text("{}")

    for _ in range(2):
        folder = build_once(tmp_path / "deep" / "checkpoint", build)
        assert (folder / "config.json").read_text() == "{}"
    assert len(builds) == 1
