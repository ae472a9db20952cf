"""The commands: declare options, parse, call the store, print.

Doors: all; `gitckpt.cli.parser.commands` names each.
"""
