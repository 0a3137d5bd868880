"""`rel-batch run CONFIG`, killed with -9 by itself when so many requests have finished.

python benchmarks/lm_eval/killed_run.py CONFIG NUM_FINISHED
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from rel_batch.config import read_config
from rel_batch.launch.local import run_locally
from rel_batch.records import Completion
from rel_batch.scoring import PartTally


class Killer:
    """Progress that ends the process."""

    def __init__(self, num_finished: int) -> None:
        self._left = num_finished

    def say(self, message: str) -> None: ...
    def begin(self, total: int, finished: int) -> None: ...
    def scored(self, tally: PartTally) -> None: ...
    def end(self) -> None: ...

    def completed(self, completion: Completion) -> None:
        del completion
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    run_locally(read_config(Path(sys.argv[1]), []), Killer(int(sys.argv[2])), workers=1)
