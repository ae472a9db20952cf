"""What git keeps in files, read and written without a process where that is plain; and files that anybody may have made.

Doors:
    ref_files: refs as the files that they are.
    regular: files that a branch may have brought along.
    atomic: a file written whole or not at all.
    refs_stat: whether refs, or a file, can have changed since somebody looked.
    mounts: what is mounted below a directory, and not ours to delete.
    premises: directories of ours, which may lie where a branch has put a link.
"""
