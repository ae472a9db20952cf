"""Checkpoints as they are written, listed, found and removed: documents, refs, links and the derived index.

Doors:
    layout: names of refs.
    entry: what a listing knows, and what it is asked for.
    recorder: writes one.
    index: lists them.
    finder: what a person means by an id.
    remover: takes them away.
    draft: from what a caller says to a document.
    heads: the newest one of a run.
    keep: the refs that keep linked commits alive.
    keys: callers' own names for runs.
"""
