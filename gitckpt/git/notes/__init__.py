"""Notes of commits: read, and edited as trees.

Doors:
    editor: the notes of one ref.
"""
