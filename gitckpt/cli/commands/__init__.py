"""The functions of the commands: check options, call the store, print the result.

Public modules: all; `gitckpt.cli.parser.commands` names each.
"""
