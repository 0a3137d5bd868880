"""What a run says: the numbers (`summary.py`), the table of the terminal (`table.py`).

print(to_json(summarise(RunFolder.open(path))))
"""

from rel_batch.report.summary import Group, Mean, Rate, Summary, summarise, to_json, wilson
from rel_batch.report.table import render_table
from rel_batch.store import export_run

__all__ = [
    "Group",
    "Mean",
    "Rate",
    "Summary",
    "export_run",
    "render_table",
    "summarise",
    "to_json",
    "wilson",
]
