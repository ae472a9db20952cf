"""Run a shell command with all that it starts, and leave no process of it running.

Doors:
    execution: `run_command`, its time limits (`Timeouts`) and its result (`CommandResult`).
    watchdog: `Watchdog`, which starts commands and ends those of a driver that was killed.
    env_tag: `EnvTag`, the variables that name the run of a process; `end_leftovers`.
    process_tree: list processes, find descendants, send signals.
"""
