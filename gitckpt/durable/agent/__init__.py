"""Asks an agent, whichever client it comes as, and reads its answer from what the client prints.

Doors:
    clients: `client_of` and `read_clients`: which client a text or a file means. A new one is a file of its own, and stands in `DIALECTS`.
    call: `Agent`, which is asked, and its `Answer`.
"""
