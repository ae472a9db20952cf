"""What a phase of a pipeline does: a shell command, or something that gitckpt does itself.

Doors:
    command: `CommandPhase`, a shell command.
    agent: an agent that is asked once; what its kinds of failures mean for a run.
    options: reads a plan, and names a branch after it.
    loop: a room; an agent works again and again until all is done.
    review: a room; an agent works, and another one judges.
"""
