"""Commands about the installation, one file each: set up, looked after, measured, shown.

Doors: all; `gitckpt.cli.parser.commands` names each.
"""
