"""Write, list, find and remove checkpoints: documents, refs, notes and the index.

Doors:
    ref_names: names of refs and files.
    entry: entries and queries of listings.
    recorder: writes a checkpoint.
    index: lists checkpoints.
    finder: resolves ids, prefixes and revs.
    remover: removes checkpoints.
    draft: turns arguments into a document.
    heads: the newest checkpoint of a run.
    commit_refs: the refs that keep linked commits alive.
    keys: keys of runs that callers choose.
"""
