"""Secrets in what is stored: found by their form, masked, and settled by whoever knows that they are none.

Doors:
    detector: finds and masks.
    suspects: those in the files of a snapshot.
    settled: false alarms.
    copies: what is stored of the files that a run was started with.
"""
