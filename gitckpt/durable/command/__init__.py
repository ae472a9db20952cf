"""Runs a shell command with all that it starts, and lets nothing of it outlive the run that wanted it.

Doors:
    execution: `run_command`, how long it waits (`Patience`), and how a command ended (`Ending`).
    watchdog: `Watchdog`, which starts commands, and ends those of a driver that was killed.
    mark: `Mark`, by which it is known what descends from which run.
    leftovers: ends what the commands of a driver that is gone left running.
    exclusion: whoever brings files into the worktree of a run does so alone.
    processes: what other processes do.
"""
