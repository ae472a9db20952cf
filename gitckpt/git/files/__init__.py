"""What git keeps in files, read and written without a process where that is plain; and files that anybody may have made.

Doors:
    refs_stat: refs as the files that they are.
    regular: files that a branch may have brought along.
    atomic: a file written whole or not at all.
    mounts: what is mounted below a directory, and not ours to delete.
    premises: directories of ours, which may lie where a branch has put a link.
"""
