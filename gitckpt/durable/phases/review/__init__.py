"""The step "review": one agent writes code until another agent approves it.

Public modules:
    phase: `perform_review` performs the phase; `store_changed_task` changes the task of a review.
    state: `ReviewState`, the progress of a review as stored in the run's state.
"""
