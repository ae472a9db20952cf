"""Runs as the store knows them: what has become of each, its phases, and its files beside the worktree.

Doors:
    summary: all runs, and one.
    run_files: inputs and outputs.
    trust: which runs were written here, what decides whether to go on with another one, and how that is adopted.
"""
