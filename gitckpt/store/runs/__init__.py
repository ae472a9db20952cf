"""Runs as the store knows them: what has become of each, its phases, and its files beside the worktree.

Doors:
    summary: all runs, and one.
    timeline: one, phase by phase.
    run_files: inputs and outputs.
    unwritten: checkpoints that could not be written.
    trust: which inputs were given here.
    resumable: which checkpoint somebody could go on with.
"""
