"""Hooks: make git call gitckpt at every commit, beside the hooks of others.

Doors:
    installation: installs, removes and inspects the hooks.
    files: the hooks, and their blocks in hook files.
"""
