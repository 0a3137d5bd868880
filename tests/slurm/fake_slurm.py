"""Commands of SLURM that are faked, for machines without it: scripts of our own in PATH.

After submitit's habit.
"""

from __future__ import annotations

import shlex
from pathlib import Path


class FakeSlurm:
    """Commands that note how they were called and answer what a test has laid down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct"):
            self.answer(name, "", code=0)
        self._write("sbatch", _FAKE_SBATCH)
        self.refuse(0)

    def answer(self, name: str, text: str, *, code: int = 0, error: str = "") -> None:
        """Let a command print `text` whatever it is asked."""
        self._write(
            name,
            f'echo {name} "$@" >> {self.folder}/calls\nprintf %s {shlex.quote(text)}\n'
            f"printf %s {shlex.quote(error)} >&2\nexit {code}\n",
        )

    def refuse(self, number: int) -> None:
        """Let sbatch refuse its call of this number, from 1 on; 0 for none."""
        (self.folder / "refuse").write_text(str(number))

    @property
    def scripts(self) -> list[str]:
        """What was queued."""
        return [path.read_text() for path in sorted(self.folder.glob("script-*"))]

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def _write(self, name: str, body: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/bash\nset -e\ncd {self.folder}\n{body}")
        file.chmod(0o755)


_FAKE_SBATCH = """
echo sbatch "$@" >> calls
number=$(($(ls script-* refused-* 2>/dev/null | wc -l) + 1))
if [ "$(cat refuse)" = "$number" ]; then
    cat > refused-$number
    echo "sbatch: error: Batch job submission failed: Invalid account" >&2
    exit 1
fi
cat > script-$number
echo $((4710 + number))
"""
