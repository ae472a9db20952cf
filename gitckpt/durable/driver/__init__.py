"""Drive a run through its pipeline, phase by phase, and ask people at pauses.

Public modules:
    pipelines: `Pipelines`, which previews, starts and resumes runs of pipelines.
    driver: `Driver`, the built-in steps, and the options for starting and resuming a run.
"""
