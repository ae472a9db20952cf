"""What an audit keeps of each checkpoint while it compares all of them.

Doors:
    table: the checkpoints, in columns of bytes.
"""
