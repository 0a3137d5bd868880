"""The run folder, and the one home of pyarrow.

    run = RunFolder.open(Path("outputs/quickstart"))
    for completion in run.iter_completions(): ...

`run_folder.py` says what is where; `disk.py` how a file becomes complete or absent;
`manifest.py` how a folder becomes one run; `schemas.py` what the rows are; `parts.py` which row
of a request counts; `compaction.py` merges parts; `claims.py` how a worker gets its chunks,
`survey.py` who has which; `export.py` writes everything about a run into one file; `tables.py` a
report's small tables.
"""

from rel_batch.store.compaction import Compaction, compact
from rel_batch.store.disk import FileGoneError, make_folder
from rel_batch.store.export import export_run
from rel_batch.store.run_folder import RunFolder
from rel_batch.store.schemas import ScoreRow
from rel_batch.store.tables import write_file, write_table

__all__ = [
    "Compaction",
    "FileGoneError",
    "RunFolder",
    "ScoreRow",
    "compact",
    "export_run",
    "make_folder",
    "write_file",
    "write_table",
]
