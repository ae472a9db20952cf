"""Drive a run through its pipeline, phase by phase, with pauses for people.

Doors:
    pipelines: `Pipelines`, the public API.
    driver: the options for starting and resuming a run, and the driver.
"""
