"""Define pipelines, which are ordered phases with inputs, and start runs of them.

Public modules:
    definition: `PipelineDefinition` and `PhaseDefinition`, and the parser of `gitckpt.toml`.
    launch: start a run, read its inputs, and detect what changed before it is resumed.
"""
