"""Hooks: how git comes to call gitckpt at every commit, beside what others have there.

Doors:
    installation: puts them in, takes them out, and tells what became of them.
    files: which ones there are.
"""
