"""From what is typed to a call of a command: plain calls without Typer, all others with it.

Doors:
    quick: plain calls.
    app: all others.
    commands: which there are.
"""
