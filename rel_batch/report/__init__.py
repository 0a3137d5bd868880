"""What runs say: the numbers (`summary.py`), the table of the terminal (`table.py`), the report.

    print(to_json(summarise(RunFolder.open(path))))
    publish_report(find(read_evidence([run])), folder)    # rel_batch.report.publish

Rows on disk become `evidence`, evidence becomes `findings` (by `statistics`, over `cells`), and
findings become tables, figures and pages. Surprising: what a written report needs is imported from
its module and not from here, so that the table of the terminal starts at once.
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
