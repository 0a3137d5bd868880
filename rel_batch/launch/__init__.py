"""Starting a run: reading and planning what it needs, and the processes that work on it."""
