"""Objects of git: read and written through a port with two adapters, and what is asked about many of them.

Doors:
    plumbing: the adapter without libgit2, for those who cannot wait for it.
    port: what an adapter does.
    adapters: which one serves a repository.
    anchor: whether a `git gc` is at work, which objects have to be held against.
    pack: packs of our own, against such a gc.
    encoding: oids and trees as bytes.
    diff: what differs between trees, and at how many paths.
    connectivity: what is missing beneath.
    reachability: which commits lead to which.
    holder: keeps commits and lends them no name.
    partial: what a partial clone has yet to fetch.
"""
