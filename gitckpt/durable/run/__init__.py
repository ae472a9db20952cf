"""Drive a run: carry out its phases, each of them once, and record checkpoints.

Public modules:
    run: `Run`, the public API; `session_of` returns the internal `RunSession` of a `Run`.
    opener: `begin_run` starts a run; `reopen_run` acquires its lease and opens its worktree.
    attempts: `RunSession`, which carries out phases; options, errors and results of phases.
"""
