"""Read settings; `gitckpt.toml` needs the user's permission to weaken a default.

Public modules:
    settings: reads the settings of a repository; names the tables that other modules read.
    file: reads a TOML file as tables, and raises an error that lists all mistakes.
"""
