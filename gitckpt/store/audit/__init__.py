"""Find and repair defects, judging by the stored objects alone.

Doors:
    verification: `git ckpt verify`.
    doctor: `git ckpt doctor`.
"""
