"""Configuration: `gitckpt.toml`, for everybody, and `git config ckpt.*`, for one clone.

A file of the tree may only tighten by itself; where it loosens anything, `git ckpt allow` has to allow that here.

Doors:
    settings: what applies to a repository; the names of the tables that others read.
    file: a file as tables, and the error that tells all that is wrong with it.
"""
