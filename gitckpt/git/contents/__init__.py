"""The files of a worktree on their way: into objects and trees, through git's filters or past them, and back with directories and modes.

Doors: all.
"""
