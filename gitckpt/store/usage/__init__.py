"""What the checkpoints of a repository take on the disk, and what lies around.

Doors:
    usage: all of it, counted once.
"""
