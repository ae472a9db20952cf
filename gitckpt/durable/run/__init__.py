"""Runs that this process drives: phases that are carried out exactly once.

Doors:
    run: `Run`, the public API.
    active_run: the same for the rooms above.
    opener: `begin` and `reopen`: the first checkpoint of a run; its lease, worktree and files.
    attempts: conduct of a phase (`PhaseOptions`, `Retries`) and the result of an attempt (`Ended`).
"""
