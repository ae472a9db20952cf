"""The commands, a room for each thing that they are about, one file each: it declares its options, parses, calls the store, and prints.

Doors: all; `gitckpt.cli.parser.commands` names each.
"""
