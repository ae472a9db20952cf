"""What goes, when, and why: checkpoints and runs by policy, worktrees of runs, leftovers of kills.

Doors:
    expiry: by policy.
    cleanup: runs of a pipeline, by age.
    whole: one run, by name.
    worktree: the worktree of a run.
    maintenance: all of it, now and then; when it last ran.
    clock: whether things expire by it that nobody asked to go.
    sweep: what killed processes have left.
"""
