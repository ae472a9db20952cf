"""Submodules as what they are: repositories, each with checkpoints of its own, which those of the repository around it name.

Doors:
    keeper: captures them, and lets their checkpoints go with those that need them.
"""
