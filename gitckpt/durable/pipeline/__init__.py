"""Define pipelines (ordered phases with inputs), and start runs of pipelines.

Public modules:
    definition: `PipelineDefinition` and `PhaseDefinition`, and the parser of `gitckpt.toml`.
    launch: read the inputs of a run, start it, and detect changes before it is resumed.
"""
