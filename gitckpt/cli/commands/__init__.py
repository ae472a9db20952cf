"""The commands, one file each: it declares its options, parses, calls the store, and prints.

Doors: `demo` (the demonstration), `registry` (which commands there are, and where each is).
"""
