"""Floor 3, durable runs: work that survives crashes and resumes where it stopped.

Rooms, each of which imports only those before it:
    command: runs a shell command with all its child processes.
    agent: asks an agent.
    run: phases that are carried out once.
    pipeline: the phases of a run, read from a file.
    phases: the kinds of phases.
    steps: the step protocol for agents that gitckpt did not start.
    progress: a module; the progress of a loop, for people.
    driver: drives a run through its pipeline.
"""
