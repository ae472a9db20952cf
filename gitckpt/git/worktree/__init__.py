"""Read and write a worktree's git state: index, operation in progress, submodules.

Public modules: all.
"""
