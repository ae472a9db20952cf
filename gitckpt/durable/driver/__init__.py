"""Takes a run through its pipeline: phase after phase, with pauses where people want to have a look.

Doors:
    pipelines: `Pipelines`, as programs have them.
    wishes: how somebody wants a run to be driven, and gone on with.
    registry: the steps that gitckpt knows itself, by their names.
    driver: `Driver`, the `Observer` whom it tells and asks, and its `Result`.
"""
