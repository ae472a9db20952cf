"""Runs as the store knows them: what has become of each, its phases, and its files beside the worktree.

Doors:
    summary: all runs, and one.
    timeline: one, phase by phase.
    attempts: who attempted its phases, and what has changed since.
    run_files: inputs and outputs.
    unwritten: checkpoints that could not be written.
    trust: which runs were written here, what decides whether to go on with another one, and how that is adopted.
    resumable: which checkpoint somebody could go on with.
"""
