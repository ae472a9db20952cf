"""Objects that are damaged where they lie: found, and written anew from where their content still is.

git takes an object to be there as soon as a file has its name, and never writes it again, however empty that file is.

Doors:
    integrity: which objects are damaged.
    committed: which of those are that a commit has brought.
    soundness: which trees are none that git would write, and how much is below each.
    unusable: trees that are damaged in a pack, and are to be written beside it.
    salvage: where their content still is, and how it gets back.
    rescue: what a gc took of a commit before it was recorded, written anew.
"""
