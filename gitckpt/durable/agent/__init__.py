"""Ask an AI agent: run its client program, such as `claude`; read the answer.

Public modules:
    clients: `find_client` returns a client by name or command; `read_clients` reads `gitckpt.toml`.
        `DIALECTS` maps names of clients that print JSON messages to parsers of these messages.
    call: `AgentRunner` sends a prompt to a client and returns an `AgentAnswer`.
"""
