"""Runs that this process drives: phases that are done once, whatever happens in between.

Doors:
    run: `Run`, from its start or resumption to its end, as programs have it.
    active_run: the same, as the rooms above work with it.
    opener: `begin` and `reopen`: the first checkpoint of a run, and its lease, worktree and files.
    attempts: how a phase is carried out and tried again (`Conduct`, `Retries`), and how an attempt ended (`Ended`).
"""
