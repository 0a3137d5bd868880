"""A report on disk: page, Markdown, tables and figures.

publish_report(find(read_evidence([run])), Path("outputs/run/report"))
"""

from __future__ import annotations

from pathlib import Path

from rel_batch.report.figures import draw_figures
from rel_batch.report.findings import Findings
from rel_batch.report.html import render_html
from rel_batch.report.markdown import render_markdown
from rel_batch.report.sections import all_tables
from rel_batch.store import make_folder, write_file, write_table


def publish_report(findings: Findings, folder: Path) -> Path:
    """Write the report into a folder, over an older one, and give the page's path.

    The folder gets report.html, report.md, tables/*.csv and *.parquet, figures/*.svg and *.png.
    Raises StoreError.
    """
    figures = list(draw_figures(findings))
    for place in (folder, folder / "tables", folder / "figures"):
        make_folder(place, parents=True)
    for table in all_tables(findings):
        write_table(folder / "tables" / table.name, *table.flat())
    for figure in figures:
        write_file(folder / "figures" / f"{figure.name}.svg", figure.image("svg"))
        write_file(folder / "figures" / f"{figure.name}.png", figure.image("png"))
    write_file(folder / "report.md", render_markdown(findings, figures).encode())
    page = folder / "report.html"
    write_file(page, render_html(findings, figures).encode())
    return page
