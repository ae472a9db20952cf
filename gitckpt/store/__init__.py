"""Contain all operations on checkpoints, runs, worktrees and git hooks."""
