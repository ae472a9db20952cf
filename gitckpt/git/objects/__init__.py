"""Objects of git: read and written through a port with two adapters, as bytes, and compared.

Doors:
    plumbing: the adapter without libgit2, for those who cannot wait for it.
    port: what an adapter does.
    adapters: which one serves a repository.
    pack: packs of our own.
    encoding: oids and trees as bytes.
    trees: what is at which path of a tree.
    diff: what differs between trees, and at how many paths.
    holder: keeps commits and lends them no name.
"""
