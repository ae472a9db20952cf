"""Carry out the phases of a pipeline, with pauses at which a person is asked.

Public modules:
    pipelines: `Pipelines`, which previews, starts and resumes runs of pipelines.
    driver: `RunDriver`, the built-in steps, and the options for starting and resuming a run.
"""
