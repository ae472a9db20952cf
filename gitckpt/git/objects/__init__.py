"""Read, write, encode and compare git objects, through a port with two adapters.

Doors:
    plumbing: the adapter that calls git instead of libgit2.
    port: the interface of an adapter.
    writer: write loose objects and packs.
    encoding: oids and trees as bytes.
    diff: the entries of a tree, and what differs between trees.
    alternates: commits that keep others alive.
"""
