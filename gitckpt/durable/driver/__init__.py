"""Takes a run through its pipeline: phase after phase, with pauses where people want to have a look.

Doors:
    pipelines: `Pipelines`, as programs have them.
    driver: how somebody wants a run to be driven, and gone on with.
"""
