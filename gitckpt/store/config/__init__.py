"""Configuration: `gitckpt.toml`, for everybody, and `git config ckpt.*`, for one clone.

A file of the tree may only tighten by itself; where it loosens, somebody on this machine has to have approved that.

Doors:
    settings: what applies to a repository; the names of the tables that others read.
    committed: the file that a run would begin with.
    rules: the same for those who speak to a person.
    looseness: what is looser in the file than what is built in.
    approval: what was approved here.
    file: a file as tables, and the error that tells all that is wrong with it.
    table: reads the keys of one table, and notes each mistake.
"""
