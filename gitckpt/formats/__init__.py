"""Import and export checkpoint files of other tools.

Public modules:
    importer: `Importer`, which records files of other tools as checkpoints of runs.
    exporter: `Exporter`, which writes checkpoints and runs as files of another tool.
"""
