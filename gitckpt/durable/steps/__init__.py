"""The step protocol, by which agents and scripts report their progress to gitckpt.

Public modules:
    steps: `Steps`, the public API.
    journal: `record_report` records a report; `find_report_target` finds its run.
    report: `StepReport`, the content of a report.
    graph: `Graph`, the steps and the transitions between them.
    graph_file: reads a graph from a file or the preset.
    machine: `find_position` returns a run's current step, `apply_report` its new state.
"""
