"""Store worktree files as git objects and write them back, filtered or raw.

Public modules: all.
"""
