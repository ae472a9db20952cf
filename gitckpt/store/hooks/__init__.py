"""Install hooks through which git calls gitckpt, next to hooks of other programs.

Public modules:
    installation: installs, removes and inspects the hooks.
    files: edits gitckpt's block of lines in hook files.
"""
