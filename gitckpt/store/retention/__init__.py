"""Remove checkpoints, runs and worktrees by policy, and files of killed commands.

Public modules:
    expiry: removes checkpoints and runs by policy, and one named run.
    maintenance: runs background maintenance, and removes complete runs by age.
    worktree: removes the worktree of a run.
    sweep: removes files and refs that killed processes left behind.
"""
