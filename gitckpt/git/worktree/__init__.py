"""A worktree as git knows it: index, sparse settings, an operation in progress, what is ignored or converted, where git keeps all that.

Doors: all.
"""
