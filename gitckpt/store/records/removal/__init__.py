"""Checkpoints are taken away, with their links, and with what keeps their commits where no other one needs it.

Doors:
    remover: does it.
    withdrawal: the notes name no longer what goes.
    carried: notes that list checkpoints of other commits.
    known: what was found before, and need not be looked for again.
    ends: the refs that keep linked commits alive move down, or go.
"""
