"""Call git, and read and write refs, objects and worktrees.

All processes are started through `process`; refs change only in git's own transactions.

Doors: all.
"""
