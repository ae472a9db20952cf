"""What people see, and what they are asked, at a terminal or through a pipe.

Doors:
    terminal: prints and asks.
    audience: tells of a run as it goes on.
"""
