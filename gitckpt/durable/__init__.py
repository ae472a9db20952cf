"""Floor 3, durable runs: commands, agents, pipelines and steps, all of whose work a crash interrupts but does not undo.

Rooms, each of which imports only those before it:
    command: runs a shell command with all that it starts.
    agent: asks an agent.
    run: phases that are done once.
    pipeline: the phases of a run, read from a file.
    phases: what a phase does.
    steps: what agents that gitckpt did not start report of their work.
    progress: a module; how far a loop has come, for people.
    driver: takes a run through its pipeline.
"""
