"""What is wrong, found from objects alone, and what can be mended.

Doors:
    verification: what `git ckpt verify` does.
    doctor: what `git ckpt doctor` looks at.
"""
