"""Commands about checkpoints, one file each: recorded, listed, looked at, brought back, removed.

Doors: all; `gitckpt.cli.parser.commands` names each.
"""
