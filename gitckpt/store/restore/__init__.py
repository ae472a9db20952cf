"""The files of a checkpoint into the worktree one is in, after a safety checkpoint, and back and forth.

Doors:
    restorer: `restore`, `undo`, which takes one back, and `redo`.
    report: what became of it.
    undo: the steps that these two can take.
    extraction: one file of a checkpoint, for whoever wants to read it.
    submodules: whether all that did not come back are some of these.
    position: where HEAD is, and where files are from.
"""
