"""The files of a worktree as a tree, and back to the index: what differs is captured, and compared with what was.

Doors:
    capture: files → tree.
    manifest: what a snapshot holds.
    repair: damaged objects of a snapshot, written anew from the files.
    comparison: a worktree against its snapshot.
    index_state: an index as a snapshot has it.
    limits: what is left out.
"""
