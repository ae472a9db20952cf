"""The files of a checkpoint into the worktree one is in, after a safety checkpoint, and back.

Doors:
    restorer: `restore`, and `undo`, which takes one back.
"""
