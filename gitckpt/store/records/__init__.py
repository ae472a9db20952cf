"""Write, list, find and remove checkpoints: documents, refs, notes and the index.

Public modules:
    ref_names: names of gitckpt's refs and files.
    entry: `CheckpointInfo`, an entry of a listing, and `Query`, its criteria.
    recorder: writes the objects and refs of a checkpoint.
    index: lists checkpoints from a cache in SQLite.
    finder: resolves ids, prefixes of ids, and git revisions to checkpoints.
    remover: removes checkpoints.
    draft: turns the arguments of `save` into a checkpoint document.
    heads: moves and reads the ref to the newest checkpoint of each run.
    commit_refs: maintains the refs that keep linked commits alive.
    keys: stores the key that a caller chose for a run.
"""
