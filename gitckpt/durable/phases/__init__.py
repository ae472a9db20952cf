"""The phases of a pipeline: shell commands, and work that gitckpt does itself.

Doors:
    command: `perform`, a shell command.
    options: phase options, and the phases that read a plan and name a branch.
    loop: a room; an agent works repeatedly until everything is done.
    review: a room; a coder works and a reviewer judges.
"""
