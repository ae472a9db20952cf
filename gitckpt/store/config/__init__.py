"""Configuration: `gitckpt.toml` can only tighten the defaults without approval.

Doors:
    settings: the settings of a repository, and the names of other modules' tables.
    file: a file as tables, and the error that lists all of its mistakes.
"""
