"""Protect the work of AI agents that gitckpt did not start.

Public modules:
    client_hook: answers the call of a client's hook.
    clients: installs hooks in the settings of clients.
    guards: keeps what a command may destroy.
    shell_command: tells whether a shell command only reads, and the words it has.
    turn_list: lists the turns of sessions, with what each changed.
    watch: records checkpoints when files change, for agents without hooks.
"""
