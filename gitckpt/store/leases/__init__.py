"""Leases: the right to drive a run, one holder at a time.

Public modules:
    leases: acquires, renews and checks leases; reached as `store.leases`.
"""
