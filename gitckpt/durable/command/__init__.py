"""Runs a shell command with all that it starts, and lets nothing of it outlive the run that wanted it.

Doors:
    execution: `run_command`, how long it waits (`Patience`), and how a command ended (`Outcome`).
    watchdog: `Watchdog`, which ends a command whose driver was killed.
    processes: what other processes do.
"""
