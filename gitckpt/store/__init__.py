"""Floor 2: the store. Checkpoints, runs, snapshots and worktrees, expiry, and the installation of the hooks."""
