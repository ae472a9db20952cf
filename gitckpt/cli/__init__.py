"""Floor 4: the command line. Each command parses, calls the store, and prints; nothing below this floor prints or asks."""
