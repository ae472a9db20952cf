"""The step protocol: reports of agents and scripts that gitckpt did not start.

Doors:
    steps: `Steps`, the public API.
    journal: `report`, which records a report, and the run it belongs to.
    report: `StepReport`, the content of a report.
    graph: `Graph`, the steps and their order.
    graph_file: graphs from a file or the preset.
    machine: the step that a run is at, and the next one.
"""
