"""Restore a checkpoint's files into the current worktree, and undo a restore.

Public modules:
    restorer: `restore_checkpoint`, `undo_restore` and `redo_restore`.
    undo: lists the restores that `undo` and `redo` can reverse.
    submodules: restores submodules, and tells whether nothing else failed in a restore.
"""
