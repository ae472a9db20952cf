"""A worktree as git knows it: its index, its sparse settings, an operation in progress, what is ignored, and where git keeps all that.

Doors: all.
"""
