"""Checkpoints are taken away, with their links, and with what keeps their commits where no other one needs it.

Doors:
    remover: does it.
    ends: the refs that keep linked commits alive move down, or go.
"""
