"""Runs: their status, phases, and the files beside their worktrees.

Public modules:
    summary: the status of all runs, and the history of one run.
    run_files: input and output files of a run, beside the worktree.
    trust: checks which runs were written in this repository, and adopts fetched runs.
"""
