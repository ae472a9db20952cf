"""What goes, when, and why: checkpoints and runs by policy, worktrees of runs, leftovers of kills.

Doors:
    expiry: by policy.
    maintenance: runs of a pipeline, by age.
    worktree: the worktree of a run.
    sweep: what killed processes have left.
"""
