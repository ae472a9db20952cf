"""Remove checkpoints and runs by policy, worktrees, and leftovers of kills.

Doors:
    expiry: expiry by policy, and removal of one run.
    maintenance: background maintenance, and removal of complete runs by age.
    worktree: removal of a run's worktree.
    sweep: removal of what killed processes left behind.
"""
