"""Coder and reviewer: one agent works, another one judges, until the work is approved."""
