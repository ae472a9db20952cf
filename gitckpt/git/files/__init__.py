"""What git keeps in files, read without a process where that is plain.

Doors:
    reader: refs and objects, as `CatFile` gives them.
"""
