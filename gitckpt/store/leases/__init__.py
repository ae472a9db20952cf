"""Leases: the right to drive a run, one holder at a time.

Doors:
    leases: who takes, holds and is bound; reached as `store.leases`.
    intent: what a driver has written down, and not recorded yet; reached as `store.intents`.
    cancellation: whoever drives a run is stopped.
    lease: the document, and the errors of whoever finds that somebody else drives the run.
"""
