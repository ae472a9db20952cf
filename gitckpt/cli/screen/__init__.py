"""What people see, and what they are asked, at a terminal or through a pipe.

Doors:
    terminal: prints and asks.
    captured: warns of files that were captured.
    audience: tells of a run as it goes on.
"""
