"""Read, write, encode and compare git objects, with libgit2 or by calling git.

Public modules:
    plumbing: the adapter that calls git instead of libgit2.
    writer: the interface of both adapters; write loose objects and packs.
    encoding: oids and trees as bytes.
    diff: list the entries of a tree, and compare trees.
"""
