"""The files of a worktree as a tree, and back to the index: what differs is captured, and compared with what was.

Doors:
    limits: whether a snapshot would capture a file.
    capture: files → tree.
    manifest: what a snapshot holds.
    assurance: a snapshot that is recorded is whole, or captured again.
    comparison: a worktree against its snapshot.
"""
