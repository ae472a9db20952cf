"""The files of a checkpoint into the worktree one is in, after a safety checkpoint, and back and forth.

Doors:
    restorer: `restore`, `undo`, which takes one back, and `redo`.
    undo: the steps that these two can take.
    submodules: whether all that did not come back are some of these.
"""
