"""Pipelines: the phases of a run in their order, as a file or a preset defines them, and what a run of one is started with.

Doors:
    definition: `PipelineDefinition` and `PhaseDefinition`, pure values.
    file: `read`, which finds a pipeline by its name, and the presets.
    launch: `start`, and what a run must still agree with when it goes on.
"""
