"""Restore a checkpoint's files into the current worktree; undo and redo.

Doors:
    restorer: `restore`, `undo` and `redo`.
    undo: the steps that `undo` and `redo` can take.
    submodules: tells whether a restore failed for submodules only.
"""
