"""Durable runs: work that survives crashes and resumes where it stopped.

Packages; each imports only packages that are listed above it:
    command: run a shell command with all its child processes.
    agent: ask an AI agent through its command-line client.
    run: carry out the phases of a run, each of them once.
    pipeline: read the phases of a run from a file.
    phases: perform a phase: a shell command, or a built-in step such as "review".
    steps: record the reports of agents that gitckpt did not start.
    progress: a module that extracts progress values, such as costs, from a run's state.
    driver: carry out the phases of a run's pipeline.
"""
