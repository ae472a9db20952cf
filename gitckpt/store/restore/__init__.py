"""Restore a checkpoint's files into the current worktree; undo and redo.

Public modules:
    restorer: `restore`, `undo` and `redo`.
    undo: lists the restores that `undo` and `redo` can reverse.
    submodules: tells whether only the submodules failed in a restore.
"""
