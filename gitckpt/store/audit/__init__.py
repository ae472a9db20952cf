"""Find and repair defects, judging by the stored objects alone.

Public modules:
    verification: `git ckpt verify`.
    doctor: `git ckpt doctor`.
"""
