"""The `rel-batch` command. Thin: each command parses its arguments and calls one function.

Surprising: nothing is imported before it is needed, so that `--help` answers at once and `score`
and `report` run on a machine without vllm or torch.
"""

from __future__ import annotations

import sys
import traceback


def main() -> None:
    """Run the command line; every way out has the exit code that `errors.py` gives it."""
    from rel_batch.errors import EXIT_BUG, RelBatchError

    try:
        from rel_batch.cli.commands import app

        app()
    except RelBatchError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of a pipe (`rel-batch tasks | head`) has seen enough.
        sys.stderr.close()
        sys.exit(0)
    except Exception:
        traceback.print_exc()
        print("this is a bug in rel-batch; the traceback above says where", file=sys.stderr)
        sys.exit(EXIT_BUG)
