"""Parse a command line, and call the function of its command.

Public modules:
    quick: parse plain command lines without Typer.
    app: parse all other command lines with Typer, and print help.
    commands: the name of each command, with a function that loads the command.
"""
