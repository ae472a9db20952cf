"""Leases: the right to drive a run, one holder at a time.

Doors:
    leases: acquires, renews and checks leases; reached as `store.leases`.
"""
