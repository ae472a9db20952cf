"""Ask an AI agent through its client and read the answer from the client's output.

Public modules:
    clients: `client_of` returns a client by name or command; `read_clients` reads `gitckpt.toml`.
        `DIALECTS` has a `Dialect` for each client that prints JSON messages.
    call: `Agent` sends a prompt to a client and returns an `Answer`.
"""
