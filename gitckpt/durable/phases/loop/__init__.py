"""The step "loop": call an agent until issues are closed and tests pass.

Public modules:
    loop: `Loop`, which performs one attempt of the phase, and its options.
"""
