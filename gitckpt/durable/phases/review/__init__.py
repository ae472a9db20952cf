"""Review: a coder works and a reviewer judges until the work is approved.

Doors:
    cycle: `Review`, its options and its errors.
    phase: `carry_out`, the review as a phase, and `refactor`, which changes its task.
    state: `CycleState`, the progress of a review.
"""
