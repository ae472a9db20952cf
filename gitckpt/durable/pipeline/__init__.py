"""Pipelines: the ordered phases of a run, and its inputs.

Doors:
    definition: `PipelineDefinition` and `PhaseDefinition`, pure values.
    launch: `start`, and the comparison of a resumed run with its start.
"""
