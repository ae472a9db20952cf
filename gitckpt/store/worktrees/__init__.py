"""Linked worktrees that gitckpt makes for runs and checkpoints.

Doors:
    resumption: opens the worktree of a checkpoint.
    opener: makes a worktree, or adopts one.
    ownership: the run or checkpoint that a worktree was made for.
"""
