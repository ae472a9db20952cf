"""Run a shell command, and end all processes that the command started.

Public modules:
    execution: `run_command`, its time limits (`Timeouts`) and its result (`CommandResult`).
    watchdog: `Watchdog` starts commands, and ends them even if the driver is killed.
    process_tree: functions that list processes, find their descendants and send signals.
"""
