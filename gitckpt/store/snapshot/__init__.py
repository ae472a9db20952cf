"""Capture the files of a worktree as a tree, and compare them with a snapshot.

Doors:
    limits: what a snapshot leaves out.
    capture: writes the files of a worktree as a tree.
    manifest: reads and writes the tree of a snapshot.
    assurance: checks that a recorded snapshot is complete, else captures again.
    comparison: compares a worktree with a snapshot.
"""
