"""Objects of git: read and written through a port with two adapters, as bytes, and compared.

Doors:
    plumbing: the adapter without libgit2, for those who cannot wait for it.
    port: what an adapter does.
    adapters: which one serves a repository.
    anchor: whether a `git gc` is at work, which objects have to be held against.
    pack: packs of our own, against such a gc.
    encoding: oids and trees as bytes.
    trees: what is at which path of a tree.
    diff: what differs between trees, and at how many paths.
    alternates: where objects are borrowed from.
    holder: keeps commits and lends them no name.
"""
