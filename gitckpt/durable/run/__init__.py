"""Runs that this process drives: phases that are carried out exactly once.

Public modules:
    run: `Run`, the public API; `session_of` returns its `Session` for drivers.
    opener: `begin` records a run's first checkpoint; `reopen` gets its lease and worktree.
    attempts: `Session`, which performs phases; options, errors and results of phases.
"""
