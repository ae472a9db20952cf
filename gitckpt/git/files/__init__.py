"""Read and write files without a process: those of git and those of a branch.

Doors: all.
"""
