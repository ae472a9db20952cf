"""The functions of the commands: check options, call the store, print the result.

Doors: all; `gitckpt.cli.parser.commands` names each.
"""
