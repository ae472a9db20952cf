"""Find defects from objects alone, and repair what can be repaired.

Doors:
    verification: `git ckpt verify`.
    doctor: `git ckpt doctor`.
"""
