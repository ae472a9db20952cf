"""The files of other tools that keep checkpoints: taken over as runs, and written again.

Doors:
    importer: `Importer`, which takes files over.
    exporter: `Exporter`, which gives a checkpoint or a run as files of another tool.
"""
