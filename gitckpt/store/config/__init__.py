"""Configuration: a shared `gitckpt.toml`, and `git config ckpt.*` for one clone.

The tracked file can only tighten the defaults. What it loosens needs `git ckpt allow` in the
clone.

Doors:
    settings: the settings of a repository, and the names of other modules' tables.
    file: a file as tables, and the error that lists all of its mistakes.
"""
