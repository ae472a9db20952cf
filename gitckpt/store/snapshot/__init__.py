"""Capture the files of a worktree as a tree, and compare them with a snapshot.

Public modules:
    limits: decides which files a snapshot omits.
    capture: writes the files of a worktree as a tree; checks and repairs snapshots.
    last_capture: tells that a worktree is as its last capture saw it.
    manifest: reads and writes the tree of a snapshot.
    comparison: compares a worktree with a snapshot.
"""
