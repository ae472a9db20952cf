"""Checkpoints, runs, snapshots, worktrees, expiry and the hooks' installation."""
