"""A worktree as git knows it: index, sparse settings, an operation in progress, submodules, what is ignored, where git keeps all that.

Doors: all.
"""
