"""Secrets in what is stored: found by their form, masked, and settled by whoever knows that they are none.

Doors:
    detector: finds and masks.
    settled: false alarms.
"""
