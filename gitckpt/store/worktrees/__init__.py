"""Linked worktrees that gitckpt makes: whose each is, and how one is opened again.

Doors:
    resumption: from a checkpoint to its worktree.
    opener: makes one, or finds it.
    ownership: what one was made for.
"""
