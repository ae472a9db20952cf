"""Move worktree files into git objects and back, through git's filters or not.

Doors: all.
"""
