"""Drive a run: carry out its phases, each of them once, and record checkpoints.

Public modules:
    run: `Run`, the public API; `session_of` returns the internal `Session` of a `Run`.
    opener: `begin_run` starts a run; `reopen_run` acquires its lease and opens its worktree.
    attempts: `Session`, which carries out phases; options, errors and results of phases.
"""
