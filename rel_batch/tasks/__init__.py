"""The nine REL tasks, by name.

    >>> task_for("REL-C1").title
    'constitutional isomers?'

To add a task, write one file beside this one and list its instances in `_ALL`.
"""
