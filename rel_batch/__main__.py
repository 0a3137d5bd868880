"""`python -m rel_batch` is `rel-batch`."""

from rel_batch.cli import main

# The guard matters: processes that are spawned import this module again.
if __name__ == "__main__":
    main()
