"""Read and write git's files and worktree files without starting a process.

Public modules: all.
"""
