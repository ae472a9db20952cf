"""Coder and reviewer: one agent works, another one judges, until the work is approved.

Doors:
    cycle: how a review can end other than well.
    phase: `carry_out`, the review as a phase, and `refactor`, which changes its task.
    state: `CycleState`, how far coder and reviewer have come.
"""
