"""Loop: an agent works on a plan until issues are closed and tests pass.

Doors:
    loop: `Loop`, the loop of one attempt.
"""
