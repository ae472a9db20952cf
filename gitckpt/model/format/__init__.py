"""What a document is like, to whoever writes one and to whoever reads one: the order of its keys, and what it may cost.

Doors:
    document: the keys of a checkpoint → its document.
    budget: what a document may cost.
"""
