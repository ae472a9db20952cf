"""Call git, and read and write refs, objects and worktrees.

Doors: all.
"""
