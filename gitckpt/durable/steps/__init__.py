"""The step protocol: what agents and scripts that gitckpt did not start report of their work, and where it goes on.

Doors:
    steps: `Steps`, as programs have them.
    journal: `report`, which records what is said, and the run it belongs to.
    report: `StepReport`, what can be said.
    graph: `Graph`, the steps and what follows each.
    graph_file: graphs as a file or the preset has them.
    machine: at which step a run is, and what ends it.
"""
