"""What the file of the index holds.

Doors:
    sync: brings the tables up to the refs.
    tables: made, filled, and compared with the refs.
"""
