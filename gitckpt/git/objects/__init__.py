"""Objects of git: read and written through a port with two adapters, as bytes, and compared.

Doors:
    plumbing: the adapter without libgit2, for those who cannot wait for it.
    port: what an adapter does.
    writer: packs of our own.
    encoding: oids and trees as bytes.
    diff: what is at which path of a tree.
    alternates: keeps commits and lends them no name.
"""
