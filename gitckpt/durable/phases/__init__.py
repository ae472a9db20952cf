"""Perform the phases of a pipeline: shell commands and built-in steps.

Public modules:
    command: `perform_command_phase` runs a command; `perform_agent_phase` calls an agent once.
    options: parsers of phase options, and the steps "read plan" and "generate branch".
    loop: a package; it calls an agent repeatedly until the work is done.
    review: a package; one agent writes code and another reviews it.
"""
