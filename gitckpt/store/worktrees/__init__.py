"""Linked worktrees that gitckpt makes for runs and checkpoints.

Public modules:
    resumption: opens the worktree of a checkpoint.
    opener: makes a worktree, or adopts one.
    ownership: tells which run or checkpoint a worktree was made for.
"""
