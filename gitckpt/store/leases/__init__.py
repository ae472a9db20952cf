"""Leases: the right to drive a run, one holder at a time.

Doors:
    leases: who takes, holds and is bound; reached as `store.leases`.
    cancellation: whoever drives a run is stopped.
"""
