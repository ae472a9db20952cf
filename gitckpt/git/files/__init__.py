"""What git keeps in files, read and written without a process where that is plain.

Doors:
    reader: refs and objects, as `CatFile` gives them.
    loose: objects as files of their own.
"""
