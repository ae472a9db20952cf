"""Takes a run through its pipeline: phase after phase, with pauses where people want to have a look.

Doors:
    driver: `Driver`, the `Observer` whom it tells and asks, and its `Result`.
    registry: what `use` may name: action, options, memory.
    skip: phases that need not be done.
"""
