"""Read, write, encode and compare git objects, through a port with two adapters.

Doors:
    plumbing: the adapter that calls git instead of libgit2.
    writer: the interface of an adapter; write loose objects and packs.
    encoding: oids and trees as bytes.
    diff: the entries of a tree, and what differs between trees.
"""
