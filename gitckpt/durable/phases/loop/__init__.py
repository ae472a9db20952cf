"""The step "loop": call an agent until issues are closed and tests pass.

Public modules:
    loop: `AgentLoop` performs one attempt of the phase; `LoopOptions` has its options.
"""
