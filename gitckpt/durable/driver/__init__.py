"""Takes a run through its pipeline: phase after phase, with pauses where people want to have a look.

Doors:
    pipelines: `Pipelines`, as programs have them.
    driver: `Driver`, the `Observer` whom it tells and asks, and its `Result`.
"""
