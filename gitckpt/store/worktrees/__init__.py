"""Make and find the linked worktrees of runs and checkpoints.

Public modules:
    resumption: opens the worktree of a checkpoint.
    opener: makes a worktree, or registers an existing directory as one.
    rescue: captures linked worktrees, and lists vanished ones.
    ownership: tells which run or checkpoint a worktree was made for.
"""
