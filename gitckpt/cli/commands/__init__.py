"""Check a command's options, call the store, and print the result.

Public modules: all; `gitckpt.cli.parser.commands` lists their commands.
"""
