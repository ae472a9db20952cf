"""Find and repair defects of the stored checkpoints, refs and settings.

Public modules:
    verification: `git ckpt verify`.
    doctor: `git ckpt doctor`.
"""
