"""What the file of the index holds.

Doors:
    intake: brings the tables up to the refs.
    tables: made, filled, compared with the refs, and put in order.
"""
