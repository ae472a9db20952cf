"""Ask an agent through its client and read the answer from the client's output.

Doors:
    clients: `client_of` and `read_clients`: the client that a name or a file means. Each client
        that prints messages is a `Dialect` in `DIALECTS`.
    call: `Agent`, which is asked, and its `Answer`.
"""
