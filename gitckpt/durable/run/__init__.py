"""Runs that this process drives: phases that are carried out exactly once.

Doors:
    run: `Run`, the public API, and its `Session` for the rooms above.
    opener: `begin` and `reopen`: the first checkpoint of a run; its lease, worktree and files.
    attempts: `Session`; options, errors and result (`PhaseResult`) of a phase.
"""
