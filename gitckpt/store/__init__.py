"""Manage checkpoints, runs, snapshots, worktrees, retention and git hooks."""
