"""Capture the files of a worktree as a tree, and compare them with a snapshot.

Public modules:
    limits: decides which files a snapshot omits.
    capture: writes the files of a worktree as a tree; checks and repairs snapshots.
    manifest: reads and writes the tree of a snapshot.
    comparison: compares a worktree with a snapshot.
"""
