"""What the file of the index holds.

Doors:
    tables: made, filled, compared with the refs, and put in order.
    watch: which refs have changed since.
"""
