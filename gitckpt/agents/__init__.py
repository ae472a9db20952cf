"""Sessions of AI agents that gitckpt did not start: hooks, turns and guards.

Public modules: clients, events, guards, turns.
"""
