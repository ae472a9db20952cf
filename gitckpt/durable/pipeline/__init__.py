"""Pipelines: the ordered phases of a run, and its inputs.

Doors:
    definition: `PipelineDefinition` and `PhaseDefinition`, pure values.
    file: `read`, which finds a pipeline by name, and the presets.
    launch: `start`, and the comparison of a resumed run with its start.
"""
