"""Runs: their status, phases, and the files beside their worktrees.

Doors:
    summary: all runs, and one.
    run_files: inputs and outputs.
    trust: which runs were written here, and how a foreign run is adopted.
"""
