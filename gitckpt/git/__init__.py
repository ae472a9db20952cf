"""Git: refs by its own transactions, objects through a port with two adapters, worktrees, and the one door to processes.

Doors: all.
"""
