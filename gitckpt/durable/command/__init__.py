"""Run a shell command with all that it starts, and leave no process of it running.

Doors:
    execution: `run_command`, its time limits (`Timeouts`) and its result (`CommandResult`).
    watchdog: `Watchdog`, which starts commands and ends those of a driver that was killed.
    process_tree: list processes, find descendants, send signals.
"""
