"""The autonomous loop: an agent works at a plan, again and again, until the issues are closed and the tests pass.

Doors:
    loop: `Loop`, the loop of one attempt.
    prompt: what the agent is told.
"""
