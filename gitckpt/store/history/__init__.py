"""Answer what changed from checkpoint to checkpoint, and where a file was.

Public modules:
    log: lists checkpoints with what each changed.
    files: lists the files of a checkpoint, and searches those of several.
    whereabouts: finds the last places that had a file.
    bisection: finds the first checkpoint in which a command fails.
"""
