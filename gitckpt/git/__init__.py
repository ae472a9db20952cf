"""Floor 1: git. Refs by git's own transactions, objects through a port with two adapters, and the one door to processes."""
