"""Write, list, find and remove checkpoints: their documents, refs and git notes.

Public modules:
    ref_names: names of gitckpt's refs and files.
    entry: `CheckpointInfo`, an entry of a listing, and `Query`, its criteria.
    recorder: writes the objects and refs of a checkpoint.
    index: lists checkpoints from a cache in SQLite.
    finder: finds the newest checkpoints of a worktree, and those of a commit.
    turns: groups the checkpoints of agents' sessions into turns.
    labels: stores a user's tags, pins and notes on checkpoints.
    addresses: resolves the texts that name checkpoints and runs.
    remover: removes checkpoints.
    draft: turns the arguments of `Store.save` into the keys of a checkpoint's document.
    heads: reads and moves each run's head, the ref to the newest checkpoint of the run.
    commit_refs: maintains the refs that protect checkpoints' commits from `git gc`.
    keys: stores the key, a text that a caller chose to find a run again.
"""
