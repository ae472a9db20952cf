"""Configuration: `gitckpt.toml`, for everybody, and `git config ckpt.*`, for one clone.

Doors:
    settings: what applies to a repository; the names of the tables that others read.
    file: a file as tables, and the error that tells all that is wrong with it.
    table: reads the keys of one table, and notes each mistake.
"""
