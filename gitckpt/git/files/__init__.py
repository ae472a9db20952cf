"""Read and write files without a process: those of git and those of a branch.

Doors:
    refs_stat: refs read from their files.
    regular: files that a branch may contain.
    atomic: replace a file as a whole.
    mounts: mount points, which must not be deleted.
    premises: gitckpt's own directories; a branch may put a link in their place.
"""
