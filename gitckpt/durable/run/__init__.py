"""Runs that this process drives: phases that are carried out exactly once.

Doors:
    run: `Run`, the public API, and its `Session` for the rooms above.
    opener: `begin` and `reopen`: the first checkpoint of a run; its lease, worktree and files.
    attempts: `Session`; options of a phase, its errors and the result of an attempt (`Ended`).
"""
