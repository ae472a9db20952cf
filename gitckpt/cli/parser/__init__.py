"""Turn a command line into the call of a command.

Doors:
    quick: plain calls, without Typer.
    app: all others.
    commands: the list of commands.
"""
