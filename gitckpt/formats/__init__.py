"""Import and export of files of other checkpoint tools.

Doors:
    importer: `Importer`, which imports files as runs.
    exporter: `Exporter`, which writes a checkpoint or a run as files of another tool.
"""
