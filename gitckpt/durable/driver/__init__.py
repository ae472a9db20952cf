"""Takes a run through its pipeline: phase after phase, with pauses where people want to have a look.

Doors:
    adoption: `require`, which asks for trust before a run of somebody else's goes on.
    pipelines: `Pipelines`, as programs have them.
    registry: the steps that gitckpt knows itself, by their names.
    driver: `Driver`, the `Observer` whom it tells and asks, and its `Result`.
"""
