"""Report the status and phases of runs; store files beside their worktrees.

Public modules:
    summary: lists the status of all runs, and reads the history of one run.
    run_files: stores input and output files of a run beside the worktree.
    trust: checks which runs were written in this repository, and adopts fetched runs.
"""
