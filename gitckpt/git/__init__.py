"""Call git, and read and write refs, objects and worktrees.

Public modules: all.
"""
