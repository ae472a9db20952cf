"""Checkpoints as they are written, listed, found and removed: documents, refs, links and the derived index.

Doors:
    layout: names of refs.
    entry: what a listing knows, and what it is asked for.
    recorder: writes one.
    index: lists them.
    finder: what a person means by an id.
    removal: takes them away.
    draft: from what a caller says to a document.
    heads: the newest one of a run.
    changed: how many paths a snapshot changed.
    keep: the refs that keep linked commits alive.
    owner: what a worktree was made for.
    keys: callers' own names for runs.
    locks: what a killed git leaves in the way of refs of ours.
"""
